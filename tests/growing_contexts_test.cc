// Contexts grow into the memory of a cache and give it back: a model of which only a part is in
// memory has the logits of the whole model, bit for bit, and its budget holds, whether contexts
// grow, fork, are cut, cancelled or restored (docs/decisions/0016-one-arena.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "prepare/pack/test_pack_models.h"
#include "test_budgets.h"
#include "test_contexts.h"

namespace hearth {
namespace {

constexpr int64_t kContext = 512;
constexpr size_t kContexts = 3;

struct ContextCase {
  const char* name;
  const char* shape;  // null: packed, as sparse as bamboo-7b, with predictors
  FfnMode mode;
  uint64_t more_mib;  // than the smallest limit
};

class GrowingContextsTest : public testing::TestWithParam<ContextCase> {
 protected:
  void SetUp() override {
    if (GetParam().shape == nullptr) {
      SynthesizeSparseModel(path_);
    } else {
      SynthesizeModel(ParseShape(GetParam().shape, GetParam().name),
                      {.quant = DType::kQ8_0, .threads = 2}, path_);
    }
    EngineOptions options{.program_bytes = kTestProgramBytes,
                          .threads = 2,
                          .context = kContext,
                          .kv_sequences = kContexts,
                          .mode = GetParam().mode};
    resident_ = Engine::Load(path_, options);
    options.memory_bytes = SmallestLimit(path_, options) + (GetParam().more_mib << 20);
    options.streaming.pipeline.lookahead = Lookahead::kOn;
    streamed_ = Engine::Load(path_, options);
    ASSERT_TRUE(streamed_->is_streamed());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "growing_contexts_" + GetParam().name + ".gguf";
  std::unique_ptr<Engine> resident_, streamed_;
};

TEST_P(GrowingContextsTest, ChangeNoBitAndNoSum) {
  const KvPool& pool = streamed_->kv_pool();
  ASSERT_EQ(pool.num_pages(), int64_t{kContexts} * kContext / 64);
  ASSERT_EQ(pool.frames().lent(), pool.num_pages());
  const uint64_t used = streamed_->budget().used_bytes();
  int64_t fewest_lent = pool.num_pages();
  {
    ContextPair contexts(*resident_, *streamed_, {.contexts = kContexts, .most_tokens = 128});
    for (int step = 0; step < 100; ++step) {
      contexts.Step();
      ASSERT_FALSE(HasFailure()) << "step " << step;
      EXPECT_EQ(streamed_->budget().used_bytes(), used);
      fewest_lent = std::min(fewest_lent, pool.frames().lent());
    }
  }
  EXPECT_LT(fewest_lent, pool.num_pages() / 2);
  EXPECT_GE(pool.frames().lent(), pool.num_pages() - static_cast<int64_t>(KvFrames::kKept));
}

INSTANTIATE_TEST_SUITE_P(
    Models, GrowingContextsTest,
    testing::Values(ContextCase{"predicted", nullptr, FfnMode::kPredicted, 14},
                    ContextCase{"gated", nullptr, FfnMode::kGated, 14},
                    ContextCase{"neurons", nullptr, FfnMode::kDense, 14},
                    ContextCase{"dense",
                                R"({"hidden_size": 256, "intermediate_size": 3072, "num_layers": 6,
                        "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600})",
                                FfnMode::kDense, 2},
                    ContextCase{
                        "early",  // experts are read while attention is computed
                        R"({"arch": "smallthinker", "hidden_size": 256, "intermediate_size": 256,
                        "num_layers": 5, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64,
                        "vocab_size": 600, "num_experts": 32, "num_experts_per_token": 4,
                        "sliding_window": 8})",
                        FfnMode::kDense, 2}),
    [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace hearth
