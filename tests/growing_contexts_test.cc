// Contexts grow into the memory of a cache and give it back: a model of which only a part is in
// memory has the logits of the whole model, bit for bit, and its budget holds, whether contexts
// grow, fork, are cut, cancelled or restored (docs/decisions/0016-one-arena.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "pass/test_passes.h"
#include "prepare/pack/test_pack_models.h"
#include "test_budgets.h"

namespace hearth {
namespace {

constexpr int64_t kContext = 512;
constexpr size_t kContexts = 3;

// The contexts of one engine.
class Contexts {
 public:
  explicit Contexts(Engine& engine) : engine_(engine) {
    for (size_t i = 0; i < kContexts; ++i) kv_.emplace_back(engine.kv_pool());
  }

  int64_t length(size_t context) const { return kv_[context].length(); }
  void Cut(size_t context, int64_t length) { kv_[context].Truncate(length); }
  void Fork(size_t from, size_t to) { kv_[to] = kv_[from].Fork(); }

  // Returns the logits of the last token.
  std::vector<float> Extend(size_t context, std::span<const TokenId> tokens) {
    const BatchSequence sequence{&kv_[context], tokens};
    engine_.pass().Run(ShapeOf(sequence),
                       tokens.size() > 1 ? engine_.prefill_selector() : engine_.selector());
    return LogitsOf(std::ssize(tokens) - 1, 1);
  }

  // One token of every context in one pass. Returns the logits of all.
  std::vector<float> ExtendAll(std::span<const TokenId> tokens) {
    std::vector<BatchSequence> batch;
    for (size_t i = 0; i < kContexts; ++i) batch.push_back({&kv_[i], tokens.subspan(i, 1)});
    engine_.pass().Run({PassKind::kDecode, batch}, engine_.selector());
    return LogitsOf(0, std::ssize(batch));
  }

  // A pass that ends before a layer: the context stays as it was.
  void ExtendAndCancel(size_t context, std::span<const TokenId> tokens, int64_t layer) {
    const int64_t before = length(context);
    engine_.pass().StopWhen([&layer] { return layer-- == 0; });
    try {
      Extend(context, tokens);
      ADD_FAILURE() << "the pass went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    }
    engine_.pass().StopWhen({});
    EXPECT_EQ(length(context), before);
  }

  // Gives up the context's pages and writes their bytes into others, as a restored session does.
  void Restore(size_t context) {
    const size_t page_bytes = engine_.kv_pool().layout().page_bytes();
    const int64_t tokens = length(context);
    std::vector<std::vector<std::byte>> saved;
    for (const std::byte* page : kv_[context].pages()) saved.emplace_back(page, page + page_bytes);
    kv_[context].Truncate(0);
    kv_[context].Append(tokens);
    for (size_t i = 0; i < saved.size(); ++i) {
      std::memcpy(kv_[context].pages()[i], saved[i].data(), page_bytes);
    }
  }

 private:
  std::vector<float> LogitsOf(int64_t first, int64_t count) {
    const FloatView rows = engine_.pass().Logits(first, count);
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i) {
      all.insert(all.end(), rows.row(i), rows.row(i) + rows.cols);
    }
    return all;
  }

  Engine& engine_;
  std::vector<KvSequence> kv_;
};

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

  int64_t Pick(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }
  std::vector<TokenId> RandomTokens(int64_t count) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(3 + Pick(590)));
    return tokens;
  }

  // The same to the contexts of both engines.
  void Step(Contexts& expected, Contexts& found) {
    const auto context = static_cast<size_t>(Pick(kContexts - 1));
    const auto other = static_cast<size_t>(Pick(kContexts - 1));
    const int64_t length = expected.length(context), room = kContext - length;
    const int64_t count = std::min(Pick(1) == 0 ? 8 + Pick(120) : int64_t{1}, room);
    const int64_t layer = Pick(resident_->model().spec().num_layers - 1);
    const auto do_both = [&](const auto& change) { change(expected), change(found); };
    switch (Pick(9)) {
      case 0:
        return do_both([&](Contexts& contexts) { contexts.Fork(context, other); });
      case 1:
        return do_both([&](Contexts& contexts) { contexts.Restore(context); });
      case 2: {
        const int64_t keep = Pick(length);
        return do_both([&](Contexts& contexts) { contexts.Cut(context, keep); });
      }
      case 3:
      case 4: {
        if (count < 1) return;
        const std::vector<TokenId> tokens = RandomTokens(count);
        return do_both(
            [&](Contexts& contexts) { contexts.ExtendAndCancel(context, tokens, layer); });
      }
      case 5: {
        for (size_t i = 0; i < kContexts; ++i) {
          if (expected.length(i) == kContext) return;
        }
        const std::vector<TokenId> tokens = RandomTokens(kContexts);
        ASSERT_EQ(found.ExtendAll(tokens), expected.ExtendAll(tokens));
        return;
      }
      default: {
        if (count < 1) return;
        const std::vector<TokenId> tokens = RandomTokens(count);
        ASSERT_EQ(found.Extend(context, tokens), expected.Extend(context, tokens));
      }
    }
  }

  const std::string path_ = testing::TempDir() + "growing_contexts_" + GetParam().name + ".gguf";
  std::unique_ptr<Engine> resident_, streamed_;
  std::mt19937 random_{9};
};

TEST_P(GrowingContextsTest, ChangeNoBitAndNoSum) {
  const KvPool& pool = streamed_->kv_pool();
  ASSERT_EQ(pool.num_pages(), int64_t{kContexts} * kContext / 64);
  ASSERT_EQ(pool.lent_pages(), pool.num_pages());
  const uint64_t used = streamed_->budget().used_bytes();
  int64_t fewest_lent = pool.num_pages();
  {
    Contexts expected(*resident_), found(*streamed_);
    for (int step = 0; step < 100; ++step) {
      Step(expected, found);
      ASSERT_FALSE(HasFailure()) << "step " << step;
      EXPECT_EQ(streamed_->budget().used_bytes(), used);
      fewest_lent = std::min(fewest_lent, pool.lent_pages());
    }
  }
  EXPECT_LT(fewest_lent, pool.num_pages() / 2);
  EXPECT_GE(pool.lent_pages(), pool.num_pages() - static_cast<int64_t>(KvPool::kKeptPages));
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
