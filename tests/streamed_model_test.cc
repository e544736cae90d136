// A packed model of which only a part is in memory: the same logits, bit for bit, as in memory,
// whatever the budget, the policy, the pipeline, the backend and the number of threads (DESIGN,
// invariant 3); and what happens when its file changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/memory_info.h"
#include "engine/engine.h"
#include "engine/topic_walk.h"
#include "prepare/shapes.h"
#include "prepare/synth.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class StreamedModelTest : public testing::Test {
 protected:
  static std::string Path() { return testing::TempDir() + "streamed_model.gguf"; }

  // As sparse as bamboo-7b, with predictors; 36 MiB of neurons.
  static void SetUpTestSuite() {
    const ModelShape shape = ParseShape(
        R"({"hidden_size": 512, "intermediate_size": 6144, "num_layers": 4, "num_heads": 8,
            "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "drelu"})",
        "streamed");
    SynthesizeModel(shape, {.threads = 2, .planted = PlantedOptions{}, .packed = true}, Path());
  }
  static void TearDownTestSuite() { std::filesystem::remove(Path()); }

  static std::unique_ptr<Engine> Load(const EngineOptions& options) {
    return Engine::Load(Path(), options);
  }

  // The smallest limit that a refusal names.
  static uint64_t SmallestLimit(EngineOptions options) {
    options.memory_bytes = ResidentBytes();
    try {
      Load(options);
    } catch (const Error& error) {
      const std::string words = "the smallest that can is ", text = error.what();
      const size_t at = text.find(words);
      if (at == std::string::npos) throw;
      return std::stoull(text.substr(at + words.size())) << 20;
    }
    ADD_FAILURE() << "nothing was refused";
    return 0;
  }

  static std::vector<TokenId> Text(Engine& engine) {
    const Model& model = engine.model();
    return TopicWalk(*TopicMap::FromMetadata(model.metadata(), model.spec().vocab_size)).Take(24);
  }

  // Logits of a prompt of `prompt` tokens, and after every token that follows.
  static std::vector<float> Logits(Engine& engine, size_t prompt) {
    const std::vector<TokenId> tokens = Text(engine);
    KvSequence kv(engine.kv_pool());
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t count = begin == 0 ? prompt : 1;
      const BatchSequence sequence{&kv, std::span(tokens).subspan(begin, count)};
      engine.forward().Run({&sequence, 1},
                           begin == 0 ? engine.prefill_selector() : engine.selector());
      const FloatView logits = engine.forward().Logits(static_cast<int64_t>(count) - 1, 1);
      all.insert(all.end(), logits.data, logits.data + logits.cols);
      begin += count;
    }
    return all;
  }
};

TEST_F(StreamedModelTest, EveryBudgetPolicyAndPipelineGivesTheLogitsOfMemory) {
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated, FfnMode::kDense}) {
    EngineOptions options{.threads = 2, .context = 64, .mode = mode};
    const std::vector<float> expected = Logits(*Load(options), 12);
    int trial = 0;
    // From the smallest to half of the neurons in memory.
    for (const uint64_t more_mib : {0, 8, 16}) {
      for (const CachePolicyKind policy : AllCachePolicies()) {
        options.threads = 1 + trial % 4;
        options.memory_bytes = SmallestLimit(options) + (more_mib << 20);
        options.streaming.pipeline = {
            policy, trial % 3 == 0 ? PipelineKind::kBlocking : PipelineKind::kCluster};
        options.streaming.io.backend = trial % 2 == 0 ? IoBackend::kAuto : IoBackend::kPread;
        options.streaming.pinned_share = 0.25 * (trial % 4);
        ++trial;
        const auto engine = Load(options);
        ASSERT_NE(engine->streamed(), nullptr);
        EXPECT_EQ(Logits(*engine, 12), expected) << FfnModeName(mode) << " " << more_mib;
        if (mode == FfnMode::kPredicted) {
          EXPECT_GT(engine->stream_counts().misses, 0);
          EXPECT_GT(engine->stream_counts().hits + engine->stream_counts().pinned, 0);
        } else {
          EXPECT_GT(engine->streamed()->range_counts().bytes, 0);
        }
      }
    }
  }
}

TEST_F(StreamedModelTest, KeepsItsPromiseInTheLedger) {
  EngineOptions options{.threads = 2, .context = 64};
  options.memory_bytes = SmallestLimit(options) + (uint64_t{16} << 20);
  const auto engine = Load(options);
  ASSERT_NE(engine->streamed(), nullptr);
  uint64_t promised = 0;
  for (const auto& [name, bytes] : engine->planned_ledger()) promised += bytes;
  EXPECT_LE(promised, *options.memory_bytes);
  EXPECT_EQ(engine->budget().used_bytes(), promised);
}

TEST_F(StreamedModelTest, TooLittleIsRefusedWithWhatWouldDo) {
  const EngineOptions options{.memory_bytes = ResidentBytes() + (uint64_t{9} << 20), .context = 64};
  try {
    Load(options);
    FAIL() << "it cannot fit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_THAT(error.what(), HasSubstr("the smallest that can is"));
  }
}

TEST_F(StreamedModelTest, AFileThatChangesFailsTheNextTokenOnly) {
  const std::string copy = testing::TempDir() + "streamed_copy.gguf";
  std::filesystem::copy_file(Path(), copy, std::filesystem::copy_options::overwrite_existing);
  EngineOptions options{.threads = 2, .context = 64};
  options.memory_bytes = SmallestLimit(options) + (uint64_t{16} << 20);
  const auto engine = Engine::Load(copy, options);
  ASSERT_NE(engine->streamed(), nullptr);
  const std::vector<TokenId> tokens = Text(*engine);
  KvSequence kv(engine->kv_pool());
  const auto pass = [&] {
    const BatchSequence sequence{&kv, std::span(tokens).first(1)};
    engine->forward().Run({&sequence, 1}, engine->selector());
  };
  pass();
  const auto size = std::filesystem::file_size(copy);
  std::filesystem::resize_file(copy, size / 2);
  try {
    pass();
    FAIL() << "a truncated file went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("streamed_copy.gguf"));
  }
  EXPECT_EQ(kv.length(), 1) << "the token of the pass that failed is not in the cache";
  std::filesystem::remove(copy);
}

}  // namespace
}  // namespace hearth
