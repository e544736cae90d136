#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "api/test_c_api.h"
#include "base/test_data.h"
#include "hearth/hearth.h"

namespace {

using ::testing::HasSubstr;

TEST_F(CApiTest, GeneratesTextAndSaysHow) {
  hearth_session* session = hearth_session_new(model_);
  const std::vector<int32_t> prompt = Tokens("Once upon a time");
  hearth_request request;
  hearth_request_init(&request);
  request.max_tokens = 20;
  const hearth_bias biases[] = {{1, -100}, {2, -100}, {2047, -100}};
  request.sampling.biases = biases;
  request.sampling.bias_count = 3;
  std::string text;
  hearth_result result;
  const auto add = [](const char* piece, size_t bytes, void* user) {
    static_cast<std::string*>(user)->append(piece, bytes);
    return 1;
  };
  ASSERT_EQ(hearth_generate(session, prompt.data(), prompt.size(), &request, add, &text, &result,
                            &error_),
            HEARTH_OK)
      << error_.message;
  EXPECT_EQ(result.generated_tokens, 20);
  EXPECT_EQ(result.finish, HEARTH_FINISH_LENGTH);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(hearth_session_length(session), static_cast<int64_t>(prompt.size()) + 20);
  // Goes on, and stops when told to.
  const auto stop = [](const char*, size_t, void*) { return 0; };
  request.max_tokens = 300;
  ASSERT_EQ(hearth_generate(session, nullptr, 0, &request, stop, nullptr, &result, &error_),
            HEARTH_OK);
  EXPECT_EQ(result.finish, HEARTH_FINISH_CANCELLED);
  EXPECT_GT(result.reused_tokens, 0);
  hearth_session_truncate(session, 2);
  EXPECT_EQ(hearth_session_length(session), 2);
  hearth_cancel(session);  // nothing is under way
  hearth_session_free(session);
  hearth_stats stats;
  hearth_get_stats(model_, &stats);
  EXPECT_GT(stats.generated_tokens, 0);
  uint64_t sum = 0;
  hearth_each_ledger_entry(
      model_,
      [](const char*, uint64_t bytes, void* user) { *static_cast<uint64_t*>(user) += bytes; },
      &sum);
  EXPECT_GT(sum, uint64_t{10} << 20);
}

TEST_F(CApiTest, BuffersThatAreTooSmallSayHowMuchIsNeeded) {
  const std::string text = "A fox ran to the river.";
  size_t count = 0;
  EXPECT_EQ(hearth_tokenize(model_, text.data(), text.size(), 0, nullptr, 0, &count, &error_),
            HEARTH_TOO_SMALL);
  std::vector<int32_t> tokens(count);
  EXPECT_EQ(
      hearth_tokenize(model_, text.data(), text.size(), 0, tokens.data(), count, &count, &error_),
      HEARTH_OK);
  std::string back(200, '\0');
  size_t bytes = 0;
  EXPECT_EQ(hearth_detokenize(model_, tokens.data(), count, back.data(), 5, &bytes, nullptr),
            HEARTH_TOO_SMALL);
  EXPECT_EQ(
      hearth_detokenize(model_, tokens.data(), count, back.data(), back.size(), &bytes, nullptr),
      HEARTH_OK);
  EXPECT_THAT(back.substr(0, bytes), HasSubstr(text));
  const hearth_message messages[] = {{"user", "Hi"}};
  EXPECT_EQ(hearth_encode_chat(model_, messages, 1, nullptr, 0, &count, &error_), HEARTH_TOO_SMALL);
  EXPECT_GT(count, 5u);
}

TEST_F(CApiTest, ChatsSayWhatEndsTheirAnswers) {
  EXPECT_NE(hearth_chat_stop(model_, 0), nullptr);
  EXPECT_EQ(hearth_chat_stop(model_, 1000), nullptr);
  EXPECT_EQ(hearth_chat_stop(nullptr, 0), nullptr);
}

TEST_F(CApiTest, WhatIsMissingInARequestIsRefused) {
  hearth_session* session = hearth_session_new(model_);
  const std::vector<int32_t> prompt = Tokens("Once");
  const auto status_of = [&](size_t tokens, const std::function<void(hearth_request&)>& change) {
    hearth_request request;
    hearth_request_init(&request);
    change(request);
    hearth_result result;
    result.generated_tokens = 7;
    const hearth_status status = hearth_generate(session, prompt.data(), tokens, &request, nullptr,
                                                 nullptr, &result, &error_);
    EXPECT_EQ(result.generated_tokens, 0);
    return status;
  };
  const char* const none[] = {nullptr};
  EXPECT_EQ(status_of(1, [](auto& r) { r.stop_count = 1; }), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(1, [&](auto& r) { r.stop = none, r.stop_count = 1; }),
            HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(1, [](auto& r) { r.sampling.bias_count = 1; }), HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(status_of(SIZE_MAX, [](auto&) {}), HEARTH_INVALID_ARGUMENT);
  hearth_session_free(session);
  size_t count = 7;
  EXPECT_EQ(hearth_detokenize(model_, prompt.data(), SIZE_MAX, nullptr, 0, &count, &error_),
            HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(count, 0u);
  count = 7;
  EXPECT_EQ(hearth_tokenize(model_, nullptr, 3, 0, nullptr, 0, &count, &error_),
            HEARTH_INVALID_ARGUMENT);
  EXPECT_EQ(count, 0u);
}

TEST_F(CApiTest, NothingHappensWithoutAHandle) {
  EXPECT_EQ(hearth_context(nullptr), 0);
  EXPECT_EQ(hearth_vocab_size(nullptr), 0);
  EXPECT_EQ(hearth_session_length(nullptr), 0);
  hearth_session_truncate(nullptr, 0);
  hearth_cancel(nullptr);
  hearth_each_ledger_entry(model_, nullptr, nullptr);
  hearth_each_ledger_entry(
      nullptr, [](const char*, uint64_t, void*) {}, nullptr);
  hearth_stats stats;
  stats.running = 7;
  hearth_get_stats(nullptr, &stats);
  EXPECT_EQ(stats.running, 0);
  hearth_get_stats(model_, nullptr);
  hearth_options_init(nullptr);
  hearth_request_init(nullptr);
}

TEST_F(CApiTest, MessagesAreCutBetweenCharacters) {
  hearth_model* none = nullptr;
  for (const char* const shift : {"/", "/a"}) {
    std::string path = shift;
    for (int i = 0; i < 400; ++i) path += "\xC3\xA4";
    EXPECT_NE(hearth_load(path.c_str(), nullptr, &none, &error_), HEARTH_OK);
    const std::string message = error_.message;
    ASSERT_GE(message.size(), sizeof(error_.message) - 2);
    EXPECT_EQ(message.back(), '\xA4');
  }
}

TEST_F(CApiTest, AnActivationIsForFilesThatDoNotSayIt) {
  hearth_options options;
  hearth_options_init(&options);
  options.threads = 1;
  options.activation = "relu";
  hearth_model* other = nullptr;
  const std::string own = hearth::SourcePath("models/hearth-stories-5m.gguf");
  EXPECT_EQ(hearth_load(own.c_str(), &options, &other, &error_), HEARTH_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("drelu, which the file says itself"));
  const std::string silent = testing::TempDir() + "c_api_silent.gguf";
  hearth::WriteStoriesWithoutActivation(silent);
  options.activation = "drelu";
  ASSERT_EQ(hearth_load(silent.c_str(), &options, &other, &error_), HEARTH_OK) << error_.message;
  const auto text_of = [&](hearth_model* model) {
    hearth_session* session = hearth_session_new(model);
    hearth_request request;
    hearth_request_init(&request);
    request.max_tokens = 12;
    request.sampling.temperature = 0;
    std::string text;
    const auto add = [](const char* piece, size_t bytes, void* user) {
      static_cast<std::string*>(user)->append(piece, bytes);
      return 1;
    };
    const std::vector<int32_t> prompt = Tokens("Once upon a time");
    EXPECT_EQ(hearth_generate(session, prompt.data(), prompt.size(), &request, add, &text, nullptr,
                              &error_),
              HEARTH_OK);
    hearth_session_free(session);
    return text;
  };
  EXPECT_EQ(text_of(other), text_of(model_));
  hearth_free(other);
  std::remove(silent.c_str());
}

TEST_F(CApiTest, ErrorsAreValues) {
  hearth_model* none = nullptr;
  EXPECT_EQ(hearth_load("/nowhere.gguf", nullptr, &none, &error_), HEARTH_NOT_FOUND);
  EXPECT_EQ(error_.status, HEARTH_NOT_FOUND);
  EXPECT_THAT(error_.message, HasSubstr("nowhere"));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(hearth_load(nullptr, nullptr, &none, nullptr), HEARTH_INVALID_ARGUMENT);
  const int32_t bad = -5;
  size_t bytes = 0;
  EXPECT_EQ(hearth_detokenize(model_, &bad, 1, nullptr, 0, &bytes, &error_),
            HEARTH_INVALID_ARGUMENT);
  hearth_session* session = hearth_session_new(model_);
  EXPECT_EQ(hearth_generate(session, nullptr, 0, nullptr, nullptr, nullptr, nullptr, &error_),
            HEARTH_INVALID_ARGUMENT)
      << "an empty text has no next token";
  const std::vector<int32_t> many(100'000, 5);
  EXPECT_EQ(hearth_generate(session, many.data(), many.size(), nullptr, nullptr, nullptr, nullptr,
                            &error_),
            HEARTH_CONTEXT_FULL);
  EXPECT_EQ(hearth_session_length(session), 0);
  hearth_session_free(session);
  hearth_free(nullptr);
  EXPECT_EQ(hearth_session_new(nullptr), nullptr);
}

}  // namespace
