// The C interface: loading with more, conversations with tools, answers of a schema, scores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "api/test_c_api.h"
#include "base/test_data.h"
#include "hearth/hearth.h"

namespace {

using ::testing::HasSubstr;

template <typename T>
T Sized() {
  T value = {};
  value.struct_size = sizeof(T);
  return value;
}

class CApiChatTest : public CApiTest {
 protected:
  void SetUp() override {
    CApiTest::SetUp();
    session_ = hearth_session_new(model_);
    hearth_request_init(&request_);
    request_.max_tokens = 100;
    request_.sampling.temperature = 0;
  }
  void TearDown() override {
    hearth_answer_free(answer_);
    hearth_prompt_free(prompt_);
    hearth_session_free(session_);
    CApiTest::TearDown();
  }

  hearth_status Ask(const hearth_question& question) {
    hearth_answer_free(answer_);
    return hearth_ask(session_, &question, &request_, &answer_, &error_);
  }

  // A prompt of one question, with the tool in which it may, or must, ask for the weather.
  hearth_status MakePrompt(bool must_call) {
    const hearth_turn turn = {.role = "user", .content = "How is the weather?"};
    const hearth_tool tool = {
        .name = "get_weather",
        .description = nullptr,
        .parameters = R"({"type": "object", "properties": {"sky": {"enum": ["blue", "grey"]}},
                          "required": ["sky"], "additionalProperties": false})"};
    auto chat = Sized<hearth_chat>();
    chat.turns = &turn;
    chat.turn_count = 1;
    chat.tools = &tool;
    chat.tool_count = 1;
    chat.must_call = must_call ? 1 : 0;
    chat.one_call_at_most = 1;
    hearth_prompt_free(prompt_);
    return hearth_prompt_new(model_, &chat, &prompt_, &error_);
  }

  hearth_session* session_ = nullptr;
  hearth_prompt* prompt_ = nullptr;
  hearth_answer* answer_ = nullptr;
  hearth_request request_ = {};
};

TEST_F(CApiChatTest, PromptsTellHowFarTheyAreAndMayBeStopped) {
  ASSERT_EQ(MakePrompt(false), HEARTH_OK) << error_.message;
  struct Told {
    int64_t done = 0, total = 0;
    int goes_on = 1;
  } told;
  auto question = Sized<hearth_question>();
  question.prompt = prompt_;
  question.user = &told;
  question.on_prefill = [](int64_t done, int64_t total, void* user) {
    auto& to = *static_cast<Told*>(user);
    to.done = done;
    to.total = total;
    return to.goes_on;
  };
  request_.max_tokens = 3;
  ASSERT_EQ(Ask(question), HEARTH_OK) << error_.message;
  EXPECT_EQ(told.total, static_cast<int64_t>(hearth_prompt_length(prompt_)));
  EXPECT_EQ(told.done, told.total);
  EXPECT_STREQ(hearth_answer_stop_text(answer_), "");
  told.goes_on = 0;
  request_.max_tokens = 100;
  ASSERT_EQ(Ask(question), HEARTH_OK) << error_.message;
  hearth_result result = {};
  hearth_answer_result(answer_, &result);
  EXPECT_EQ(result.finish, HEARTH_FINISH_CANCELLED);
  EXPECT_LT(result.generated_tokens, 3);
}

TEST_F(CApiChatTest, CallsOfToolsAreReadAndKeepToTheirSchema) {
  ASSERT_EQ(MakePrompt(true), HEARTH_OK) << error_.message;
  EXPECT_GT(hearth_prompt_length(prompt_), 10u);
  std::string told;
  auto question = Sized<hearth_question>();
  question.prompt = prompt_;
  question.on_part = [](const hearth_part* part, void* user) {
    std::string& text = *static_cast<std::string*>(user);
    EXPECT_EQ(part->kind, HEARTH_PART_CALL);
    EXPECT_EQ(part->call, 0);
    EXPECT_EQ(part->bytes, std::strlen(part->text));
    if (part->name != nullptr) text += std::string(part->name) + "!";
    text += part->text;
    return 1;
  };
  question.user = &told;
  ASSERT_EQ(Ask(question), HEARTH_OK) << error_.message;
  ASSERT_EQ(hearth_answer_call_count(answer_), 1u);
  EXPECT_STREQ(hearth_answer_call_name(answer_, 0), "get_weather");
  const std::string arguments = hearth_answer_call_arguments(answer_, 0);
  EXPECT_THAT(arguments, ::testing::AnyOf(HasSubstr("blue"), HasSubstr("grey")));
  EXPECT_EQ(hearth_answer_ends_in_calls(answer_), 1);
  EXPECT_EQ(told, "get_weather!" + arguments);
  EXPECT_STREQ(hearth_answer_text(answer_), "");
  EXPECT_STREQ(hearth_answer_reasoning(answer_), "");
  EXPECT_EQ(hearth_answer_call_name(answer_, 1), nullptr);
  hearth_result result;
  hearth_answer_result(answer_, &result);
  EXPECT_EQ(result.finish, HEARTH_FINISH_STOP);
  EXPECT_EQ(result.prompt_tokens, static_cast<int64_t>(hearth_prompt_length(prompt_)));
  // The next prompt is the whole conversation: it replaces this one.
  const int64_t length = hearth_session_length(session_);
  ASSERT_EQ(Ask(question), HEARTH_OK);
  EXPECT_EQ(hearth_session_length(session_), length);
  // A failure leaves the session as it was.
  request_.sampling.top_p = 7;
  EXPECT_EQ(Ask(question), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(answer_, nullptr);
  EXPECT_EQ(hearth_session_length(session_), length);
}

TEST_F(CApiChatTest, ResultsOfToolsArePartOfAConversation) {
  const hearth_tool_call call = {.id = "c1", .name = "get_weather", .arguments = "{}"};
  const hearth_turn turns[] = {
      {.role = "user", .content = "How is the weather?"},
      {.role = "assistant", .reasoning = "Hm.", .tool_calls = &call, .tool_call_count = 1},
      {.role = "tool", .content = "It snows.", .tool_call_id = "c1"}};
  auto chat = Sized<hearth_chat>();
  chat.turns = turns;
  size_t lengths[2] = {};
  for (const size_t count : {1, 3}) {
    chat.turn_count = count;
    hearth_prompt_free(prompt_);
    ASSERT_EQ(hearth_prompt_new(model_, &chat, &prompt_, &error_), HEARTH_OK) << error_.message;
    lengths[count == 3] = hearth_prompt_length(prompt_);
  }
  EXPECT_GT(lengths[1], lengths[0] + 10);
}

TEST_F(CApiChatTest, AnswersKeepToASchemaAndHaveScores) {
  const std::vector<int32_t> tokens = Tokens("Once upon a time");
  auto question = Sized<hearth_question>();
  question.tokens = tokens.data();
  question.token_count = tokens.size();
  question.json_schema = R"({"enum": ["fox", "boat"]})";
  question.wants_scores = 1;
  question.top_scores = 3;
  ASSERT_EQ(Ask(question), HEARTH_OK) << error_.message;
  EXPECT_THAT(hearth_answer_text(answer_),
              ::testing::AnyOf(::testing::StrEq("\"fox\""), ::testing::StrEq("\"boat\"")));
  const size_t count = hearth_answer_score_count(answer_);
  ASSERT_GT(count, 0u);
  for (size_t i = 0; i < count; ++i) {
    size_t tops = 0;
    const hearth_score* top = hearth_answer_top_scores(answer_, i, &tops);
    ASSERT_EQ(tops, 3u);
    EXPECT_GE(top[0].logprob, top[2].logprob);
    EXPECT_LE(hearth_answer_score(answer_, i).logprob, top[0].logprob);
    EXPECT_LE(top[0].logprob, 0);
  }
  size_t none = 7;
  EXPECT_EQ(hearth_answer_top_scores(answer_, count, &none), nullptr);
  EXPECT_EQ(none, 0u);
  question.json_schema = R"({"type": "thing"})";
  EXPECT_EQ(Ask(question), HEARTH_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("json_schema"));
}

TEST_F(CApiChatTest, PartsCanStopTheAnswer) {
  const std::vector<int32_t> tokens = Tokens("Once upon a time");
  auto question = Sized<hearth_question>();
  question.tokens = tokens.data();
  question.token_count = tokens.size();
  question.on_part = [](const hearth_part*, void*) { return 0; };
  ASSERT_EQ(Ask(question), HEARTH_OK) << error_.message;
  hearth_result result;
  hearth_answer_result(answer_, &result);
  EXPECT_EQ(result.finish, HEARTH_FINISH_CANCELLED);
  EXPECT_EQ(hearth_answer_score_count(answer_), 0u) << "nobody asked for them";
}

TEST_F(CApiChatTest, WhatIsMissingIsRefused) {
  auto chat = Sized<hearth_chat>();
  chat.turn_count = 1;
  EXPECT_EQ(hearth_prompt_new(model_, &chat, &prompt_, &error_), HEARTH_INVALID_ARGUMENT);
  const hearth_turn nobody = {.role = nullptr, .content = "x"};
  chat.turns = &nobody;
  EXPECT_EQ(hearth_prompt_new(model_, &chat, &prompt_, &error_), HEARTH_INVALID_ARGUMENT);
  chat.struct_size = 0;
  EXPECT_EQ(hearth_prompt_new(model_, &chat, &prompt_, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("struct_size"));
  EXPECT_EQ(prompt_, nullptr);
  EXPECT_EQ(hearth_prompt_new(model_, nullptr, &prompt_, &error_), HEARTH_INVALID_ARGUMENT);
  ASSERT_EQ(MakePrompt(false), HEARTH_OK);
  auto question = Sized<hearth_question>();
  const int32_t token = 1;
  question.prompt = prompt_;
  question.tokens = &token;
  question.token_count = 1;
  EXPECT_EQ(Ask(question), HEARTH_INVALID_ARGUMENT) << "a prompt or tokens";
  EXPECT_EQ(hearth_ask(session_, nullptr, nullptr, &answer_, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(hearth_answer_text(nullptr), nullptr);
  EXPECT_EQ(hearth_answer_call_count(nullptr), 0u);
  EXPECT_EQ(hearth_prompt_length(nullptr), 0u);
  hearth_answer_free(nullptr);
  hearth_prompt_free(nullptr);
}

// A program of a newer header: what it sets beyond the struct is not dropped in silence.
TEST_F(CApiChatTest, StructsMayBeLargerThanTheLibrarys) {
  struct Newer {
    hearth_question known;
    int64_t unknown;
  };
  const std::vector<int32_t> tokens = Tokens("Once");
  Newer newer = {};
  newer.known.struct_size = sizeof(Newer);
  newer.known.tokens = tokens.data();
  newer.known.token_count = tokens.size();
  request_.max_tokens = 1;
  EXPECT_EQ(Ask(newer.known), HEARTH_OK) << error_.message;
  newer.unknown = 1;
  EXPECT_EQ(Ask(newer.known), HEARTH_UNSUPPORTED);
}

TEST(CApiLoadTest, KvCacheKernelsAndProgress) {
  hearth_options options = OneThread();
  options.context = 128;
  hearth_model* model = nullptr;
  hearth_error error;
  const auto kv_bytes = [&](const char* kv) {
    auto more = Sized<hearth_load_more>();
    more.kv = kv;
    more.isa = "scalar";
    uint64_t bytes = 0;
    EXPECT_EQ(hearth_load_with(kEmbeddedModel.c_str(), &options, &more, &model, &error), HEARTH_OK)
        << error.message;
    hearth_each_ledger_entry(
        model,
        [](const char* name, uint64_t of_entry, void* user) {
          if (std::strcmp(name, "kv cache") == 0) *static_cast<uint64_t*>(user) = of_entry;
        },
        &bytes);
    hearth_free(model);
    return static_cast<double>(bytes);
  };
  EXPECT_GT(kv_bytes("f32"), 1.99 * kv_bytes("f16"));
  EXPECT_LT(kv_bytes("k8v8"), 0.6 * kv_bytes("f16"));
  auto more = Sized<hearth_load_more>();
  more.kv = "f8";
  EXPECT_EQ(hearth_load_with(kEmbeddedModel.c_str(), &options, &more, &model, &error),
            HEARTH_INVALID_ARGUMENT);
  more = Sized<hearth_load_more>();
  more.isa = "abacus";
  EXPECT_NE(hearth_load_with(kEmbeddedModel.c_str(), &options, &more, &model, &error), HEARTH_OK);
  EXPECT_THAT(error.message, HasSubstr("abacus"));
  more = Sized<hearth_load_more>();
  uint64_t last[2] = {};
  more.on_progress = [](uint64_t done, uint64_t total, void* user) {
    static_cast<uint64_t*>(user)[0] = done;
    static_cast<uint64_t*>(user)[1] = total;
    return 1;
  };
  more.user = last;
  ASSERT_EQ(hearth_load_with(kEmbeddedModel.c_str(), &options, &more, &model, &error), HEARTH_OK);
  hearth_free(model);
  EXPECT_GT(last[1], uint64_t{1} << 20);
  EXPECT_EQ(last[0], last[1]);
  more.on_progress = [](uint64_t, uint64_t, void*) { return 0; };
  EXPECT_EQ(hearth_load_with(kEmbeddedModel.c_str(), &options, &more, &model, &error),
            HEARTH_CANCELLED);
  EXPECT_EQ(model, nullptr);
}

TEST(CApiLoadTest, ATextGoesOnAfterARestart) {
  const std::string folder =
      testing::TempDir() + "c_api_sessions." + std::to_string(getpid()) + "/";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  hearth_options options = OneThread();
  auto more = Sized<hearth_load_more>();
  more.session_folder = folder.c_str();
  hearth_error error;
  std::vector<int32_t> tokens(500);
  hearth_request request;
  hearth_request_init(&request);
  request.max_tokens = 150;
  const std::string text = "Once upon a time";
  size_t count = 0;
  hearth_result result;
  for (const bool is_second : {false, true}) {
    hearth_model* model = nullptr;
    ASSERT_EQ(hearth_load_with(kEmbeddedModel.c_str(), &options, &more, &model, &error), HEARTH_OK)
        << error.message;
    hearth_session* session = hearth_session_new(model);
    if (!is_second) {
      ASSERT_EQ(hearth_tokenize(model, text.data(), text.size(), 1, tokens.data(), tokens.size(),
                                &count, &error),
                HEARTH_OK);
    }
    ASSERT_EQ(
        hearth_generate(session, tokens.data(), count, &request, nullptr, nullptr, &result, &error),
        HEARTH_OK)
        << error.message;
    ASSERT_EQ(hearth_session_tokens(session, tokens.data(), tokens.size(), &count, &error),
              HEARTH_OK);
    EXPECT_EQ(static_cast<int64_t>(count), hearth_session_length(session));
    hearth_close(model, 10'000);
    EXPECT_EQ(hearth_generate(session, nullptr, 0, &request, nullptr, nullptr, nullptr, &error),
              HEARTH_CANCELLED);
    hearth_session_free(session);
    hearth_free(model);
  }
  EXPECT_GE(result.reused_tokens, 64) << "pages came from the folder";
  hearth_close(nullptr, 0);
  EXPECT_EQ(hearth_session_tokens(nullptr, nullptr, 0, &count, &error), HEARTH_INVALID_ARGUMENT);
  std::filesystem::remove_all(folder);
}

}  // namespace
