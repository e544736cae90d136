// What programs may choose of streaming and memory, through the C and C++ interfaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hearth/hearth.h"
#include "hearth/hearth.hpp"
#include "prepare/pack/test_pack_models.h"
#include "test_budgets.h"

namespace hearth {
namespace {

using testing::HasSubstr;
using testing::Not;

class LibraryOptionsTest : public testing::Test {
 protected:
  // As sparse as bamboo-7b, with predictors; 36 MiB of neurons.
  static void SetUpTestSuite() {
    folder_ = new TestFolder("library_options");
    SynthesizeSparseModel(Model());
    streamed_bytes_ = SmallestBytes() + (uint64_t{14} << 20);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Model() { return folder_->Path("model.gguf"); }

  static api::LoadOptions Options(uint64_t memory_bytes) {
    return {.memory_bytes = memory_bytes, .threads = 1, .context = 64, .parallel = 1};
  }

  // What a refusal names.
  static uint64_t SmallestBytes() {
    try {
      api::Model::Load(Model(), Options(1 << 20));
    } catch (const api::Error& error) {
      EXPECT_EQ(error.code(), api::ErrorCode::kOutOfBudget) << error.what();
      return LimitOfRefusal(error.what());
    }
    ADD_FAILURE() << "nothing was refused";
    return 0;
  }

  static std::optional<api::Error> ErrorOf(const api::LoadOptions& options) {
    try {
      api::Model::Load(Model(), options);
    } catch (const api::Error& error) {
      return error;
    }
    return std::nullopt;
  }

  static void ExpectRefused(const api::LoadOptions& options, const std::string& field) {
    const auto error = ErrorOf(options);
    ASSERT_TRUE(error) << field;
    EXPECT_EQ(error->code(), api::ErrorCode::kInvalidArgument) << error->what();
    EXPECT_EQ(error->field(), field) << error->what();
    EXPECT_THAT(error->what(), Not(HasSubstr("--")));
  }

  static TestFolder* folder_;
  static uint64_t streamed_bytes_;
};

TestFolder* LibraryOptionsTest::folder_ = nullptr;
uint64_t LibraryOptionsTest::streamed_bytes_ = 0;

TEST_F(LibraryOptionsTest, CProgramsChooseHowAModelIsStreamed) {
  hearth_options options;
  hearth_options_init(&options);
  options.memory_bytes = streamed_bytes_;
  options.threads = 1;
  options.context = 64;
  options.parallel = 1;
  hearth_load_more more = {};
  more.struct_size = sizeof(more);
  hearth_streaming streaming = {};
  streaming.struct_size = sizeof(streaming);
  hearth_error error = {};
  const auto text = [&](bool chooses) {
    more.streaming = chooses ? &streaming : nullptr;
    hearth_model* model = nullptr;
    EXPECT_EQ(hearth_load_with(Model().c_str(), &options, &more, &model, &error), HEARTH_OK)
        << error.message;
    hearth_info info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(hearth_get_info(model, &info, &error), HEARTH_OK) << error.message;
    EXPECT_EQ(info.is_streamed, 1);
    hearth_request request;
    hearth_request_init(&request);
    request.max_tokens = 8;
    request.sampling.temperature = 0;
    hearth_session* session = hearth_session_new(model);
    const int32_t prompt[] = {1, 2, 3};
    EXPECT_EQ(hearth_generate(session, prompt, 3, &request, nullptr, nullptr, nullptr, &error),
              HEARTH_OK)
        << error.message;
    std::vector<int32_t> tokens(32);
    size_t count = 0;
    EXPECT_EQ(hearth_session_tokens(session, tokens.data(), tokens.size(), &count, &error),
              HEARTH_OK);
    tokens.resize(count);
    double read = 0;
    hearth_each_count(
        model,
        [](const char* name, double value, void* user) {
          if (std::string(name) == "decode_bytes_read") *static_cast<double*>(user) = value;
        },
        &read);
    hearth_session_free(session);
    hearth_free(model);
    return std::pair(tokens, read);
  };
  const auto by_default = text(false);
  EXPECT_GT(by_default.first.size(), 3u);
  streaming.pipeline = "blocking";
  streaming.io = "pread";
  streaming.cache_policy = "lru";
  streaming.merge_gap_bytes = -1;
  streaming.pinned_share = -1;
  const auto chosen = text(true);
  EXPECT_EQ(chosen.first, by_default.first) << "how it is read changes no token";
  EXPECT_NE(chosen.second, by_default.second);
  streaming.lookahead = "on";
  hearth_model* model = nullptr;
  EXPECT_EQ(hearth_load_with(Model().c_str(), &options, &more, &model, &error),
            HEARTH_INVALID_ARGUMENT);
  EXPECT_THAT(error.message, HasSubstr("lookahead: it has no effect with pipeline blocking"));
  streaming.struct_size = 1;
  EXPECT_EQ(hearth_load_with(Model().c_str(), &options, &more, &model, &error),
            HEARTH_INVALID_ARGUMENT);
}

TEST_F(LibraryOptionsTest, WhatMakesNoSenseIsRefusedByName) {
  api::LoadOptions options = Options(streamed_bytes_);
  options.streaming.pipeline = "tensor";
  ExpectRefused(options, "pipeline");
  options.streaming = {};
  options.streaming.merge_gap_bytes = int64_t{2} << 20;
  ExpectRefused(options, "merge_gap");
  options.streaming = {};
  options.streaming.pinned_share = 1.5;
  ExpectRefused(options, "pinned");
  options.streaming = {};
  options = {.plan = "plan.json"};
  options.streaming.io = "pread";
  ExpectRefused(options, "plan");
}

TEST_F(LibraryOptionsTest, SettingsOfStreamingAreRefusedForAModelInMemory) {
  api::LoadOptions options = Options(0);
  options.streaming.pipeline = "cluster";
  const auto error = ErrorOf(options);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("the model is in memory as a whole"));
}

TEST_F(LibraryOptionsTest, WhatCannotBeHadIsAWarning) {
  api::LoadOptions options = Options(0);
  std::vector<std::string> warnings;
  options.on_warning = [&](const std::string& sentence) { warnings.push_back(sentence); };
  options.locks_memory = true;
  api::Model model = api::Model::Load(Model(), options);
  // A machine may allow that memory is locked.
  for (const std::string& warning : warnings) {
    EXPECT_THAT(warning, HasSubstr("memory may be swapped out: "));
  }
  EXPECT_FALSE(model.Generate({.prompt = {1}, .max_tokens = 2}).outcome.generated.empty());
}

TEST_F(LibraryOptionsTest, PromptsTellHowFarTheyAre) {
  api::Model model = api::Model::Load(Model(), Options(0));
  std::vector<int64_t> done;
  api::GenerateRequest request = {.prompt = {1, 2, 3, 4}, .max_tokens = 1};
  request.on_prefill = [&](int64_t tokens, int64_t of) {
    EXPECT_EQ(of, 4);
    done.push_back(tokens);
  };
  model.Generate(request);
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), 4);
}

}  // namespace
}  // namespace hearth
