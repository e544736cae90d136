// Tokens together against each of them alone: the same bits and counts, whatever they list, on
// every instruction set.
#include "ops/sparse_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/test_rows.h"

namespace hearth {
namespace {

class SparseBatchTest : public ::testing::Test {
 protected:
  int64_t Pick(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }

  // An FFN of rows of random sizes.
  void MakeFfn(DType dtype, FfnActivation activation) {
    hidden_ = 32 * Pick(1, 40);
    neurons_ = Pick(1, 200);
    const bool is_gated = Pick(0, 2) > 0;  // else of two matrices, with biases
    gate_.emplace(dtype, hidden_, neurons_, random_, !is_gated);
    up_.emplace(dtype, hidden_, neurons_, random_);
    down_.emplace(dtype, hidden_, neurons_, random_);
    ffn_ = {gate_->view, is_gated ? up_->view : RowsView{}, down_->view, activation, 0.1f};
  }

  // Tokens, a little apart, and what each lists: nothing, some or all.
  void MakeTokens(int64_t count) {
    stride_ = hidden_ + 16 * Pick(0, 2);
    x_.resize(static_cast<size_t>(count * stride_));
    std::normal_distribution<float> normal(0, 1);
    for (float& value : x_) value = normal(random_);
    tokens_.clear();
    for (int64_t t = 0; t < count; ++t) {
      const double share = static_cast<double>(Pick(0, 4)) / 4;
      std::vector<int32_t>& list = tokens_.emplace_back();
      for (int64_t n = 0; n < neurons_; ++n) {
        if (std::bernoulli_distribution(share)(random_)) list.push_back(static_cast<int32_t>(n));
      }
    }
    lists_.assign(tokens_.begin(), tokens_.end());
  }

  FloatView View(std::vector<float>& values) const {
    return {values.data(), std::ssize(tokens_), hidden_, stride_};
  }

  // One token after the other.
  std::vector<float> Alone(Compute& compute, bool lists, bool skips, SparseFfnCounts& counts) {
    SparseFfn op(budget_, hidden_, neurons_);
    std::vector<float> out(x_.size());
    fired_.clear();
    for (int64_t t = 0; t < std::ssize(tokens_); ++t) {
      std::optional<std::span<const int32_t>> listed;
      if (lists) listed = lists_[static_cast<size_t>(t)];
      counts += op.Activate(compute, ffn_, View(x_).row(t), listed, skips);
      op.ListFired(fired_.emplace_back());
      op.AddDown(compute, ffn_, View(out).row(t));
    }
    return out;
  }

  Budget budget_;
  std::mt19937 random_{11};
  int64_t hidden_ = 0, neurons_ = 0, stride_ = 0;
  std::optional<testing::TestRows> gate_, up_, down_;
  FfnNeurons ffn_;
  std::vector<float> x_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<std::span<const int32_t>> lists_;
  std::vector<std::vector<int32_t>> fired_;  // of every token, by the last Alone
};

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16};
constexpr FfnActivation kKinds[] = {FfnActivation::kDRelu, FfnActivation::kRelu,
                                    FfnActivation::kThresholdedSilu, FfnActivation::kSilu};

TEST_F(SparseBatchTest, EveryTokenHasTheBitsThatItHasAlone) {
  const std::vector<std::string> isas = UsableIsaNames();
  for (size_t trial = 0; trial < 96; ++trial) {
    MakeFfn(kTypes[trial % 4], kKinds[trial / 4 % 4]);
    MakeTokens(trial % 7 == 0 ? SparseBatch::kMostTokens : Pick(1, 9));
    Compute compute(isas[trial % isas.size()], 1 + static_cast<int>(trial % 4));
    const bool has_lists = trial % 5 != 0, skips = trial % 3 != 0;
    SparseFfnCounts alone, together;
    const std::vector<float> expected = Alone(compute, has_lists, skips, alone);
    SparseBatch op(budget_, {SparseBatch::kMostTokens, hidden_ + 32, neurons_ + 5});
    std::vector<float> out(x_.size());
    const auto lists = has_lists ? SparseBatch::Lists(lists_) : SparseBatch::Lists();
    together = op.Run(compute, ffn_, {View(x_), lists, skips, View(out)});
    ASSERT_EQ(out, expected) << "trial " << trial;
    EXPECT_EQ(together.gate, alone.gate);
    EXPECT_EQ(together.up, alone.up);
    EXPECT_EQ(together.active, alone.active);
    for (int64_t t = 0; t < std::ssize(tokens_); ++t) {
      std::vector<int32_t> fired;
      op.ListFired(t, fired);
      std::sort(fired_[static_cast<size_t>(t)].begin(), fired_[static_cast<size_t>(t)].end());
      EXPECT_EQ(fired, fired_[static_cast<size_t>(t)]);
    }
  }
}

TEST_F(SparseBatchTest, ScannedGatesLeaveWhatFiresForSomeToken) {
  for (size_t trial = 0; trial < 24; ++trial) {
    MakeFfn(kTypes[trial % 4], kKinds[trial % 2]);
    MakeTokens(Pick(2, 9));
    Compute compute("auto", 3);
    SparseFfnCounts alone, together;
    const std::vector<float> expected = Alone(compute, true, true, alone);
    SparseBatch op(budget_, {9, hidden_, neurons_});
    std::vector<float> out(x_.size());
    op.Begin(compute, ffn_, neurons_, {View(x_), lists_, true, View(out)});
    op.ScanGates(compute, ffn_.gate);
    FfnNeurons rest = ffn_;
    rest.gate = {};  // known by now
    rest.gate.cols = hidden_;
    const std::vector<int32_t> fired(op.neurons().begin(), op.neurons().end());
    EXPECT_TRUE(std::is_sorted(fired.begin(), fired.end()));
    // In two parts, as neurons that are read arrive.
    const auto half = static_cast<int64_t>(fired.size() / 2), all = std::ssize(fired);
    for (const auto& [begin, end] : {std::pair{half, all}, std::pair<int64_t, int64_t>{0, half}}) {
      const ClusterCounts counts = op.Finish(
          compute.kernels(), rest, {fired.data() + begin, fired.data() + begin, end - begin}, true);
      together.up += counts.fired;
      together.active += counts.active;
    }
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, half}, std::pair{half, all}}) {
      op.AddDown(compute.kernels(), rest.down,
                 {fired.data() + begin, fired.data() + begin, end - begin}, 0,
                 RowGroupCount(hidden_));
    }
    ASSERT_EQ(out, expected) << "trial " << trial;
    EXPECT_EQ(together.up, alone.up);
    EXPECT_EQ(together.active, alone.active);
  }
}

TEST_F(SparseBatchTest, RefusesWhatDoesNotFitItsScratch) {
  EXPECT_THROW(SparseBatch(budget_, {SparseBatch::kMostTokens + 1, 32, 1}), Error);
  MakeFfn(DType::kQ4_0, FfnActivation::kRelu);
  MakeTokens(3);
  Compute compute("auto", 1);
  std::vector<float> out(x_.size());
  SparseBatch few_tokens(budget_, {2, hidden_, neurons_});
  EXPECT_THROW(few_tokens.Run(compute, ffn_, {View(x_), lists_, true, View(out)}), Error);
  SparseBatch few_neurons(budget_, {3, hidden_, neurons_ - 1});
  EXPECT_THROW(few_neurons.Run(compute, ffn_, {View(x_), lists_, true, View(out)}), Error);
  SparseBatch fits(budget_, {3, hidden_, neurons_});
  const std::vector<int32_t> slots(static_cast<size_t>(ffn_.gate.rows));
  FfnNeurons anywhere = ffn_;
  anywhere.slots = slots.data();
  EXPECT_THROW(fits.Run(compute, anywhere, {View(x_), lists_, true, View(out)}), Error);
  SparseFfn one_token(budget_, ffn_.gate.cols, ffn_.gate.rows);
  EXPECT_THROW(one_token.Activate(compute, anywhere, x_.data(), slots, true), Error);
  EXPECT_THROW(fits.Run(compute, ffn_, {View(x_), std::span(lists_).first(2), true, View(out)}),
               Error);
}

}  // namespace
}  // namespace hearth
