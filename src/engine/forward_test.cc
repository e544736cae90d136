#include "engine/forward.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/engine.h"

namespace hearth {
namespace {

class ForwardTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.kv_dtype = DType::kF32;
    engine_ = Engine::Load(SourcePath("tests/goldens/") + GetParam() + ".gguf", options);
  }

  std::vector<float> LastLogits(int64_t row) {
    const FloatView logits = engine_->forward().Logits(row, 1);
    return {logits.row(0), logits.row(0) + logits.cols};
  }

  // The logits after `tokens`, alone in a batch.
  std::vector<float> Alone(KvSequence& kv, std::span<const TokenId> tokens) {
    const BatchSequence sequence{&kv, tokens};
    engine_->forward().Run({&sequence, 1}, dense_);
    return LastLogits(static_cast<int64_t>(tokens.size()) - 1);
  }

  std::unique_ptr<Engine> engine_;
  DenseSelector dense_;
};

const std::vector<TokenId> kFirst = {1, 25, 71, 269, 100};
const std::vector<TokenId> kSecond = {1, 200};
const std::vector<TokenId> kMore = {33};

TEST_P(ForwardTest, ARaggedBatchComputesWhatItsSequencesDoAlone) {
  KvPool& pool = engine_->kv_pool();
  std::vector<float> first, second;
  {
    KvSequence a(pool), b(pool);
    Alone(a, kFirst);
    first = Alone(a, kMore);
    second = Alone(b, kSecond);
  }
  KvSequence a(pool), b(pool);
  Alone(a, kFirst);
  const BatchSequence batch[] = {{&b, kSecond}, {&a, kMore}};
  engine_->forward().Run(batch, dense_);
  EXPECT_EQ(LastLogits(1), second);
  EXPECT_EQ(LastLogits(2), first);
}

TEST_P(ForwardTest, ForksContinueFromASharedPast) {
  KvPool& pool = engine_->kv_pool();
  KvSequence a(pool);
  Alone(a, kFirst);
  KvSequence b = a.Fork();
  const auto of_a = Alone(a, kMore);
  EXPECT_EQ(Alone(b, kMore), of_a);
}

TEST_P(ForwardTest, ARefusedBatchChangesNothing) {
  KvPool& pool = engine_->kv_pool();
  KvSequence a(pool), b(pool);
  Alone(a, kFirst);
  const std::vector<TokenId> outside = {1, 100000};
  const std::vector<TokenId> too_many(128, 3);
  const auto run = [&](std::vector<BatchSequence> batch) { engine_->forward().Run(batch, dense_); };
  EXPECT_THROW(run({{&a, kMore}, {&b, outside}}), Error);
  EXPECT_THROW(run({{&a, kMore}, {&a, kMore}}), Error);
  EXPECT_THROW(run({{&a, {}}}), Error);
  EXPECT_THROW(run({}), Error);
  EXPECT_THROW(run({{&a, too_many}}), Error) << "5 + 128 tokens in a context of 128";
  EXPECT_EQ(a.length(), 5);
  EXPECT_EQ(b.length(), 0);
}

TEST_P(ForwardTest, RunningOutOfPagesLeavesTheOthersAsTheyWere) {
  KvPool& pool = engine_->kv_pool();  // two pages: one context of 128
  KvSequence a(pool), b(pool), c(pool);
  Alone(a, kFirst);
  const BatchSequence batch[] = {{&b, kSecond}, {&c, kSecond}};
  try {
    engine_->forward().Run(batch, dense_);
    FAIL() << "there is no third page";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
  }
  EXPECT_EQ(b.length(), 0);
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_NO_THROW(Alone(b, kSecond));
}

INSTANTIATE_TEST_SUITE_P(Families, ForwardTest,
                         ::testing::Values("llama", "mixtral", "qwen3moe", "mistral-window"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace hearth
