#include "prepare/predict/learning_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/test_data.h"
#include "format/packed_file.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/predict/predictor_memory.h"
#include "prepare/profile/profiler.h"

namespace hearth {
namespace {

constexpr uint64_t kProgramBytes = uint64_t{64} << 20;

struct LearningCase {
  std::string name;
  std::string shape;
};

// A model whose FFNs are most of it.
class LearningPlanTest : public testing::TestWithParam<LearningCase> {
 protected:
  LearningPlanTest() {
    MakeModel(folder_.Path("model"), GetParam().shape, DType::kQ8_0);
    for (int i = 0; i < 600; ++i) text_.push_back(3 + (i * i * 31 + i * 7) % 290);
    options_.input = PredictorInput::kFfnInput;
    options_.max_tokens = std::ssize(text_);
  }

  EngineOptions Limited(std::optional<uint64_t> bytes) const {
    return {.memory_bytes = bytes, .program_bytes = kProgramBytes, .threads = 2};
  }

  // The smallest limit that a refusal names.
  uint64_t SmallestLimit(const GgufFile& file) const {
    try {
      PlanLearning(file, Limited(1), options_, std::ssize(text_));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
      const std::string words = error.what(), before = "the smallest that can is ";
      const size_t at = words.find(before);
      EXPECT_NE(at, std::string::npos) << words;
      return std::stoull(words.substr(at + before.size())) << 20;
    }
    ADD_FAILURE() << "nothing was refused";
    return 0;
  }

  // An engine as a plan for this limit wants it, with nothing to spare.
  std::unique_ptr<Engine> Load(const GgufFile& file, uint64_t limit) {
    EngineOptions engine = Limited(limit);
    const LearningPlan plan = PlanLearning(file, engine, options_, std::ssize(text_));
    options_.sample_bytes = plan.sample_bytes;
    engine.context = plan.context;
    engine.reserved_bytes = plan.reserved_bytes + LearningPlan::kDriftBytes;
    return Engine::Load(folder_.Path("model"), engine);
  }

  TestFolder folder_{"hearth-learning-plan"};
  std::vector<TokenId> text_;
  PredictorOptions options_;
};

TEST_P(LearningPlanTest, AStreamedModelTeachesTheSame) {
  const GgufFile file = GgufFile::Open(folder_.Path("model"));
  const auto resident = Engine::Load(folder_.Path("model"), Limited({}));
  for (const PredictorMethod method : {PredictorMethod::kTrainingFree, PredictorMethod::kTrained}) {
    options_.method = method;
    const auto streamed = Load(file, SmallestLimit(file));
    ASSERT_TRUE(streamed->is_streamed());
    ASSERT_EQ(streamed->context(), resident->context());
    const MadePredictors a = MakePredictors(*resident, text_, options_);
    const MadePredictors b = MakePredictors(*streamed, text_, options_);
    EXPECT_EQ(a.quality.predicted_nll, b.quality.predicted_nll);
    EXPECT_EQ(a.quality.dense_nll, b.quality.dense_nll);
    ASSERT_EQ(a.set.ffns.size(), b.set.ffns.size());
    for (size_t i = 0; i < a.set.ffns.size(); ++i) {
      EXPECT_GT(a.set.ffns[i].rank, 0);
      EXPECT_EQ(a.set.ffns[i].rank, b.set.ffns[i].rank);
      EXPECT_TRUE(a.set.ffns[i].down == b.set.ffns[i].down);
      EXPECT_TRUE(a.set.ffns[i].up == b.set.ffns[i].up);
      EXPECT_TRUE(a.set.ffns[i].bias == b.set.ffns[i].bias);
      EXPECT_EQ(a.set.ffns[i].threshold, b.set.ffns[i].threshold);
    }
  }
}

TEST_P(LearningPlanTest, AStreamedModelFiresTheSame) {
  const GgufFile file = GgufFile::Open(folder_.Path("model"));
  std::optional<ModelProfile> first;
  for (const bool streams : {false, true}) {
    const auto engine = streams ? Load(file, SmallestLimit(file))
                                : Engine::Load(folder_.Path("model"), Limited({}));
    ASSERT_EQ(engine->is_streamed(), streams);
    ModelProfile profile = PlanProfile(engine->model().spec(), ModelHash(file), text_,
                                       {.bos = engine->model().tokenizer().special().bos,
                                        .context = engine->context(),
                                        .kv_codec = engine->pass().limits().kv_codec});
    RunProfile(*engine, text_, profile, {});
    if (!first) {
      first = std::move(profile);
      continue;
    }
    for (size_t i = 0; i < first->ffns.size(); ++i) {
      EXPECT_EQ(first->ffns[i].gate_fired, profile.ffns[i].gate_fired);
      EXPECT_EQ(first->ffns[i].mass, profile.ffns[i].mass);
      EXPECT_EQ(first->ffns[i].down_norm, profile.ffns[i].down_norm);
    }
  }
}

// What a plan keeps free is enough, and no more than a few times what is needed.
TEST_P(LearningPlanTest, WhatIsReservedIsWhatItTakes) {
  const GgufFile file = GgufFile::Open(folder_.Path("model"));
  const auto engine = Engine::Load(folder_.Path("model"), Limited({}));
  const uint64_t before = engine->budget().used_bytes();
  options_.method = PredictorMethod::kTrained;
  const MadePredictors made = MakePredictors(*engine, text_, options_);
  EXPECT_GT(made.bytes, 0u);
  const PredictorMemory memory(engine->model().spec(), options_, PlanLoad(file).weights_bytes, 0,
                               std::ssize(text_));
  const int64_t most = engine->model().spec().hidden_size;
  const uint64_t promised =
      memory.KeptBytes(most) + memory.SampleBytes(options_.sample_bytes) + memory.WorkBytes(most);
  const uint64_t taken = engine->budget().peak_bytes() - before;
  EXPECT_LE(taken, promised);
  EXPECT_GE(taken, promised / 3);
}

TEST_P(LearningPlanTest, EnoughMemoryGivesNothingUp) {
  const GgufFile file = GgufFile::Open(folder_.Path("model"));
  const LearningPlan plan =
      PlanLearning(file, Limited(uint64_t{8} << 30), options_, std::ssize(text_));
  EXPECT_FALSE(plan.takes_fewer_tokens);
  EXPECT_EQ(plan.max_tokens, std::ssize(text_));
  EXPECT_EQ(plan.context, ReadModelSpec(file).context_length);
}

INSTANTIATE_TEST_SUITE_P(
    Models, LearningPlanTest,
    testing::Values(LearningCase{"dense",
                                 R"({"arch": "llama", "hidden_size": 256, "intermediate_size": 3072,
                     "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64,
                     "vocab_size": 300, "context_length": 512, "activation": "drelu"})"},
                    LearningCase{"mixture",
                                 R"({"arch": "llama", "hidden_size": 256, "intermediate_size": 1024,
                     "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64,
                     "vocab_size": 300, "context_length": 512, "activation": "relu",
                     "num_experts": 4, "num_experts_per_token": 2})"}),
    [](const auto& learning) { return learning.param.name; });

}  // namespace
}  // namespace hearth
