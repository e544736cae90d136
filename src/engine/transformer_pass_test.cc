#include "pass/transformer_pass.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/engine.h"
#include "ops/elementwise.h"

namespace hearth {
namespace {

class TransformerPassTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.kv_codec = KvCodec::kF32;
    engine_ = Engine::Load(SourcePath("tests/goldens/") + GetParam() + ".gguf", options);
  }

  std::vector<float> LastLogits(int64_t row) {
    const FloatView logits = engine_->pass().Logits(row, 1);
    return {logits.row(0), logits.row(0) + logits.cols};
  }

  // The logits after `tokens`, alone in a batch.
  std::vector<float> Alone(KvSequence& kv, std::span<const TokenId> tokens) {
    const BatchSequence sequence{&kv, tokens};
    engine_->pass().Run({PassKind::kPrefill, {&sequence, 1}}, dense_);
    return LastLogits(static_cast<int64_t>(tokens.size()) - 1);
  }

  std::unique_ptr<Engine> engine_;
  DenseSelector dense_;
};

const std::vector<TokenId> kFirst = {1, 25, 71, 269, 100};
const std::vector<TokenId> kSecond = {1, 200};
const std::vector<TokenId> kMore = {33};

TEST_P(TransformerPassTest, ARaggedBatchComputesWhatItsSequencesDoAlone) {
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
  engine_->pass().Run({PassKind::kPrefill, batch}, dense_);
  EXPECT_EQ(LastLogits(1), second);
  EXPECT_EQ(LastLogits(2), first);
}

TEST_P(TransformerPassTest, ForksContinueFromASharedPast) {
  KvPool& pool = engine_->kv_pool();
  KvSequence a(pool);
  Alone(a, kFirst);
  KvSequence b = a.Fork();
  const auto of_a = Alone(a, kMore);
  EXPECT_EQ(Alone(b, kMore), of_a);
}

TEST_P(TransformerPassTest, ARefusedBatchChangesNothing) {
  KvPool& pool = engine_->kv_pool();
  KvSequence a(pool), b(pool);
  Alone(a, kFirst);
  const std::vector<TokenId> outside = {1, 100000};
  const std::vector<TokenId> too_many(128, 3);
  const auto run = [&](std::vector<BatchSequence> batch) {
    engine_->pass().Run({PassKind::kPrefill, batch}, dense_);
  };
  EXPECT_THROW(run({{&a, kMore}, {&b, outside}}), Error);
  EXPECT_THROW(run({{&a, kMore}, {&a, kMore}}), Error);
  EXPECT_THROW(run({{&a, {}}}), Error);
  EXPECT_THROW(run({}), Error);
  EXPECT_THROW(run({{&a, too_many}}), Error) << "5 + 128 tokens in a context of 128";
  EXPECT_EQ(a.length(), 5);
  EXPECT_EQ(b.length(), 0);
}

TEST_P(TransformerPassTest, RunningOutOfPagesLeavesTheOthersAsTheyWere) {
  KvPool& pool = engine_->kv_pool();  // two pages: one context of 128
  KvSequence a(pool), b(pool), c(pool);
  Alone(a, kFirst);
  const BatchSequence batch[] = {{&b, kSecond}, {&c, kSecond}};
  try {
    engine_->pass().Run({PassKind::kPrefill, batch}, dense_);
    FAIL() << "there is no third page";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
  }
  EXPECT_EQ(b.length(), 0);
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_NO_THROW(Alone(b, kSecond));
}

// Selectors that look at the residual find the row of every token they are asked about.
class ResidualChecker : public ActivationSelector {
 public:
  explicit ResidualChecker(Engine& engine) : engine_(engine) {}

  void Select(const SelectionQuery& query, ActiveSets& out) override {
    out.SetAll();
    const auto layer = static_cast<size_t>(query.layer);
    const WeightView& norm = engine_.model().weights().layers[layer].ffn_norm;
    const FloatView residual = query.residual;
    ASSERT_EQ(residual.cols, query.ffn_input.cols);
    std::vector<float> normed(static_cast<size_t>(residual.rows * residual.cols));
    const FloatView out_rows{normed.data(), residual.rows, residual.cols, residual.cols};
    RmsNorm(engine_.compute(), residual, reinterpret_cast<const float*>(norm.data),
            engine_.model().spec().layers[layer].norm_epsilon, out_rows);
    for (size_t i = 0; i < query.tokens.size(); ++i) {
      const float* expected = query.ffn_input.row(static_cast<int64_t>(i));
      EXPECT_TRUE(std::equal(expected, expected + residual.cols, out_rows.row(query.tokens[i])));
      ++checked_;
    }
  }
  int64_t checked() const { return checked_; }

 private:
  Engine& engine_;
  int64_t checked_ = 0;
};

TEST_P(TransformerPassTest, SelectorsSeeTheResidualBeforeItsNorm) {
  KvSequence a(engine_->kv_pool());
  ResidualChecker checker(*engine_);
  const BatchSequence sequence{&a, kFirst};
  engine_->pass().Run({PassKind::kPrefill, {&sequence, 1}}, checker);
  const ModelSpec& spec = engine_->model().spec();
  const int64_t ffns = std::max<int64_t>(MainFfn(spec).num_experts_per_token, 1);
  EXPECT_EQ(checker.checked(), spec.num_layers * 5 * ffns);
}

TEST_P(TransformerPassTest, VerifyingHasTheBitsOfDecoding) {
  KvPool& pool = engine_->kv_pool();
  const std::vector<TokenId> guessed = {33, 7, 90, 41, 12, 5, 77, 31, 8, 120, 64};
  std::vector<std::vector<float>> decoded;
  {
    KvSequence a(pool);
    Alone(a, kFirst);
    for (const TokenId token : guessed) {
      const BatchSequence one{&a, {&token, 1}};
      engine_->pass().Run({PassKind::kDecode, {&one, 1}}, dense_);
      decoded.push_back(LastLogits(0));
    }
  }
  for (const size_t count : {size_t{1}, size_t{2}, guessed.size()}) {
    KvSequence a(pool);
    Alone(a, kFirst);
    const BatchSequence some{&a, std::span(guessed).first(count)};
    engine_->pass().Run({PassKind::kVerify, {&some, 1}}, dense_);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(LastLogits(static_cast<int64_t>(i)), decoded[i]) << i << " of " << count;
    }
  }
}

TEST_P(TransformerPassTest, OneTokenOfASequenceIsDecodedAtATime) {
  KvSequence a(engine_->kv_pool());
  const BatchSequence two{&a, kSecond};
  EXPECT_THROW(engine_->pass().Run({PassKind::kDecode, {&two, 1}}, dense_), Error);
  EXPECT_EQ(a.length(), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, TransformerPassTest,
                         ::testing::Values("llama", "mixtral", "qwen3moe", "mistral-window"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace hearth
