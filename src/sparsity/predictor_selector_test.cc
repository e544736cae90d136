#include "sparsity/predictor_selector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "ops/repack.h"

namespace hearth {
namespace {

using Lists = std::vector<std::vector<int32_t>>;

// Random predictors of one shape and all they need to stay alive, with the numbers they stand for.
class TestPredictors {
 public:
  TestPredictors(int64_t neurons, int64_t rank, int64_t experts, DType dtype)
      : dtype_(dtype), random_(static_cast<unsigned>(neurons * 31 + rank)) {
    model.hidden_size = kHidden;
    model.num_layers = 2;
    model.layers.resize(2);
    for (LayerSpec& layer : model.layers) {
      layer.ffn.intermediate_size = neurons;
      layer.ffn.num_experts = experts;
    }
    const int64_t count = std::max<int64_t>(experts, 1);
    PredictorSpec spec;
    spec.ranks = {rank, 0};
    for (int64_t i = 0; i < 2 * count; ++i)
      spec.thresholds.push_back(0.25f * static_cast<float>(i));
    for (WeightDecl& decl : DeclarePredictors(spec, model, predictors)) Fill(decl);
  }

  float Value(const std::string& part, int64_t expert, int64_t row, int64_t col) const {
    const Matrix& m = matrices_.at("blk.0.predictor." + part);
    return m.values[static_cast<size_t>((expert * m.rows + row) * m.cols + col)];
  }

  static constexpr int64_t kHidden = 96;
  ModelSpec model;
  ModelPredictors predictors;

 private:
  struct Matrix {
    int64_t rows, cols;
    std::vector<float> values;
    std::vector<std::byte> held;
  };

  void Fill(WeightDecl& decl) {
    const DType dtype = decl.is_vector ? DType::kF32 : dtype_;
    Matrix& m = matrices_[decl.name];
    m.rows = decl.rows;
    m.cols = decl.cols;
    const int64_t rows = decl.rows * decl.experts;
    m.values.resize(static_cast<size_t>(rows * decl.cols));
    std::normal_distribution<float> normal(0, decl.is_vector ? 1.0f : 0.15f);
    for (float& v : m.values) v = normal(random_);
    std::vector<std::byte> stored(RowBytes(dtype, m.values.size()));
    kernels::Quantize(dtype, m.values.data(), rows * decl.cols, stored.data());
    kernels::Dequantize(dtype, stored.data(), rows * decl.cols, m.values.data());
    WeightView view{.dtype = dtype, .cols = decl.cols, .rows = decl.rows, .experts = decl.experts};
    view.is_tiled = TileLayout::IsTiled(dtype);
    m.held.resize(view.expert_bytes() * static_cast<size_t>(decl.experts));
    const size_t stored_expert = stored.size() / static_cast<size_t>(decl.experts);
    for (int64_t e = 0; e < decl.experts; ++e) {
      const auto expert = static_cast<size_t>(e);
      const std::span<const std::byte> in(stored.data() + expert * stored_expert, stored_expert);
      std::byte* out = m.held.data() + expert * view.expert_bytes();
      if (view.is_tiled) {
        PackTiles(dtype, in, decl.rows, decl.cols, out);
      } else {
        std::copy(in.begin(), in.end(), out);
      }
    }
    view.data = m.held.data();
    *decl.slot = view;
  }

  DType dtype_;
  std::mt19937 random_;
  std::map<std::string, Matrix> matrices_;
};

struct Rows {
  std::vector<float> values;
  FloatView view;
  Rows(int64_t rows, unsigned seed) : values(static_cast<size_t>(rows * TestPredictors::kHidden)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(random);
    view = {values.data(), rows, TestPredictors::kHidden, TestPredictors::kHidden};
  }
};

Lists Copy(const ActiveSets& sets) {
  Lists lists;
  for (const auto& list : sets.lists()) lists.emplace_back(list.begin(), list.end());
  return lists;
}

Lists SelectOnce(const TestPredictors& p, int threads, int64_t expert,
                 std::span<const int64_t> tokens, FloatView input, FloatView residual) {
  Budget budget;
  Compute compute("auto", threads);
  PredictorSelector selector(p.model, p.predictors, compute, budget, 64);
  ActiveSets sets;
  selector.Select({0, expert, tokens, input, residual}, sets);
  EXPECT_FALSE(sets.all());
  return Copy(sets);
}

// The same of all tokens together, in steps, which so many threads take.
std::vector<int32_t> GuessOnce(const TestPredictors& p, int threads,
                               std::span<const int64_t> tokens, FloatView input,
                               FloatView residual) {
  Budget budget;
  Compute compute("auto", 1);
  PredictorSelector selector(p.model, p.predictors, compute, budget, 64, std::ssize(tokens));
  const SelectionQuery query = {0, 0, tokens, input, residual, true};
  ListGuess* guess = selector.BeginGuess(query);
  if (guess == nullptr) return {-1};
  std::atomic<int> num_last{0};
  std::vector<std::thread> others;
  const auto work = [&] {
    while (num_last == 0) {
      if (guess->TakeStep() == ListGuess::Step::kLast) ++num_last;
    }
  };
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  EXPECT_EQ(num_last, 1);
  EXPECT_EQ(guess->TakeStep(), ListGuess::Step::kNone);
  EXPECT_EQ(selector.counts()[0].neurons, 0u) << "nothing is counted";
  return {guess->listed().begin(), guess->listed().end()};
}

// The formula of predictor.h in double; NaN-free. Every neuron that is clearly on one side of the
// threshold must be where it belongs; `unclear` counts the others.
void ExpectBruteForce(const TestPredictors& p, const PredictorView& view, int64_t expert,
                      const float* h, const std::vector<int32_t>& list, double margin,
                      int64_t& unclear) {
  std::vector<double> inner(static_cast<size_t>(view.rank()));
  for (int64_t r = 0; r < view.rank(); ++r) {
    double sum = 0;
    for (int64_t i = 0; i < view.down.cols; ++i) {
      sum += static_cast<double>(p.Value("down", expert, r, i)) * static_cast<double>(h[i]);
    }
    inner[static_cast<size_t>(r)] = view.relu ? std::max(sum, 0.0) : sum;
  }
  size_t next = 0;
  for (int32_t n = 0; n < view.up.rows; ++n) {
    // Row `expert` of the bias, as its only "expert" holds them all.
    double logit = static_cast<double>(p.Value("bias", 0, expert, n));
    for (int64_t r = 0; r < view.rank(); ++r) {
      logit += static_cast<double>(p.Value("up", expert, n, r)) * inner[static_cast<size_t>(r)];
    }
    const bool listed = next < list.size() && list[next] == n;
    next += listed ? 1 : 0;
    const double above = logit - static_cast<double>(view.threshold);
    if (std::abs(above) <= margin) {
      ++unclear;
    } else {
      EXPECT_EQ(listed, above > 0) << "neuron " << n << " logit " << logit;
    }
  }
  EXPECT_EQ(next, list.size()) << "lists ascend and name each neuron once";
}

TEST(PredictorSelectorTest, ListsAreThoseOfTheFormula) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    for (const int64_t neurons : {1, 37, 2049, 4500}) {
      const int64_t rank = neurons == 1 ? 1 : 32;
      if (rank % 32 != 0 && TileLayout::IsTiled(dtype)) continue;
      TestPredictors p(neurons, rank, 0, dtype);
      for (const bool relu : {false, true}) {
        p.predictors.spec.relu = relu;
        for (const int64_t count : {1, 5}) {
          const Rows x(count, 3);
          const std::vector<int64_t> tokens = {0, 1, 2, 3, 4};
          const std::span<const int64_t> some(tokens.data(), static_cast<size_t>(count));
          const Lists lists = SelectOnce(p, 2, 0, some, x.view, x.view);
          ASSERT_EQ(lists.size(), static_cast<size_t>(count));
          int64_t unclear = 0;
          for (int64_t t = 0; t < count; ++t) {
            // Activations of quantized weights are int8 as well.
            ExpectBruteForce(p, p.predictors.At(0, 0), 0, x.view.row(t),
                             lists[static_cast<size_t>(t)], TileLayout::IsTiled(dtype) ? 0.1 : 1e-4,
                             unclear);
          }
          EXPECT_LT(unclear, std::max<int64_t>(neurons * count / 5, 2));
        }
      }
    }
  }
}

TEST(PredictorSelectorTest, ListsAreTheSameForEveryThreadCountAndBatch) {
  const TestPredictors p(4999, 64, 0, DType::kQ8_0);
  const Rows x(7, 5);
  const std::vector<int64_t> tokens = {0, 1, 2, 3, 4, 5, 6};
  const Lists expected = SelectOnce(p, 1, 0, tokens, x.view, x.view);
  EXPECT_GT(expected[0].size(), 100u);
  EXPECT_LT(expected[0].size(), 4900u);
  for (const int threads : {1, 2, 3}) {
    EXPECT_EQ(SelectOnce(p, threads, 0, tokens, x.view, x.view), expected);
    for (int64_t t = 0; t < 7; ++t) {
      const Lists alone = SelectOnce(p, threads, 0, std::span(tokens).subspan(0, 1),
                                     x.view.Rows(t, 1), x.view.Rows(t, 1));
      EXPECT_EQ(alone[0], expected[static_cast<size_t>(t)]);
    }
  }
}

// Ascending.
std::vector<int32_t> Union(const Lists& lists) {
  std::set<int32_t> all;
  for (const std::vector<int32_t>& list : lists) all.insert(list.begin(), list.end());
  return {all.begin(), all.end()};
}

TEST(PredictorSelectorTest, AGuessInStepsIsWhatTheListsNameTogether) {
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6};
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kF16, DType::kF32}) {
    for (const PredictorInput input : {PredictorInput::kFfnInput, PredictorInput::kResidual}) {
      for (const int64_t neurons : {1, 33, 7001, 30000}) {
        TestPredictors p(neurons, 96, 0, dtype);
        p.predictors.spec.input = input;
        p.predictors.spec.relu = neurons % 2 == 0;
        for (const int64_t count : {1, 2, 7}) {
          const std::span<const int64_t> tokens = std::span(all).first(static_cast<size_t>(count));
          const Rows x(count, 5), residual(count, 6);
          const Lists lists = SelectOnce(p, 1, 0, tokens, x.view, residual.view);
          for (const int threads : {1, 2, 3}) {
            EXPECT_EQ(GuessOnce(p, threads, tokens, x.view, residual.view), Union(lists))
                << NameOf(dtype) << " " << neurons << " " << count << " " << threads;
          }
        }
      }
    }
  }
}

TEST(PredictorSelectorTest, ATokenThatIsNotANumberGuessesNothing) {
  const std::vector<int64_t> tokens = {0, 1, 2};
  TestPredictors p(700, 32, 0, DType::kF32);
  Rows x(3, 5);
  const Lists lists = SelectOnce(p, 1, 0, tokens, x.view, x.view);
  for (size_t t = 0; t < 3; ++t) {
    Rows broken = x;
    broken.view.data = broken.values.data();
    std::fill_n(broken.view.row(static_cast<int64_t>(t)), TestPredictors::kHidden, std::nanf(""));
    Lists others = lists;
    others[t].clear();
    EXPECT_EQ(GuessOnce(p, 1, tokens, broken.view, broken.view), Union(others)) << t;
  }
}

TEST(PredictorSelectorTest, RefusesToGuessForMoreTokensThanPlanned) {
  const TestPredictors p(100, 32, 0, DType::kF32);
  Budget budget;
  Compute compute("auto", 1);
  PredictorSelector selector(p.model, p.predictors, compute, budget, 4, 2);
  const Rows x(3, 1);
  const std::vector<int64_t> tokens = {0, 1, 2};
  EXPECT_NE(selector.BeginGuess({0, 0, std::span(tokens).first(2), x.view.Rows(0, 2), x.view}),
            nullptr);
  EXPECT_THROW(selector.BeginGuess({0, 0, tokens, x.view, x.view}), Error);
}

TEST(PredictorSelectorTest, AnExpertReadsTheResidualOfItsOwnTokens) {
  TestPredictors p(200, 32, 3, DType::kF32);
  p.predictors.spec.input = PredictorInput::kResidual;
  const Rows residual(6, 8), other(2, 9);
  const std::vector<int64_t> tokens = {1, 4};
  const Lists lists = SelectOnce(p, 2, 2, tokens, other.view, residual.view);
  int64_t unclear = 0;
  for (size_t t = 0; t < 2; ++t) {
    ExpectBruteForce(p, p.predictors.At(0, 2), 2, residual.view.row(tokens[t]), lists[t], 1e-4,
                     unclear);
  }
  EXPECT_LT(unclear, 5);
}

TEST(PredictorSelectorTest, LayersWithoutAPredictorComputeAll) {
  const TestPredictors p(100, 32, 0, DType::kF32);
  Budget budget;
  Compute compute("auto", 1);
  PredictorSelector selector(p.model, p.predictors, compute, budget, 4);
  const Rows x(1, 1);
  const int64_t token = 0;
  ActiveSets sets;
  selector.Select({1, 0, {&token, 1}, x.view, x.view}, sets);
  EXPECT_TRUE(sets.all());
  EXPECT_EQ(selector.BeginGuess({1, 0, {&token, 1}, x.view, x.view}), nullptr);
  EXPECT_EQ(selector.counts()[1].neurons, 0u);
}

TEST(PredictorSelectorTest, ThresholdsTradeRecallForReads) {
  TestPredictors p(300, 32, 0, DType::kF32);
  const Rows x(2, 2);
  const std::vector<int64_t> tokens = {0, 1};
  size_t last = 601;
  for (const float threshold : {-100.0f, -0.5f, 0.0f, 0.5f, 100.0f}) {
    p.predictors.spec.thresholds[0] = threshold;
    const Lists lists = SelectOnce(p, 1, 0, tokens, x.view, x.view);
    const size_t found = lists[0].size() + lists[1].size();
    EXPECT_LT(found, last);
    last = found;
    if (threshold < -99) {
      EXPECT_EQ(found, 600u);
    }
  }
  EXPECT_EQ(last, 0u);
}

TEST(PredictorSelectorTest, CountsWhatItPredicts) {
  const TestPredictors p(300, 32, 0, DType::kF32);
  Budget budget;
  Compute compute("auto", 1);
  PredictorSelector selector(p.model, p.predictors, compute, budget, 4);
  const Rows x(3, 2);
  const std::vector<int64_t> tokens = {0, 1, 2};
  ActiveSets sets;
  uint64_t listed = 0;
  for (int i = 0; i < 2; ++i) {
    selector.Select({0, 0, tokens, x.view, x.view}, sets);
    for (const auto& list : sets.lists()) listed += list.size();
  }
  EXPECT_EQ(selector.counts()[0].neurons, 1800u);
  EXPECT_EQ(selector.counts()[0].predicted, listed);
  EXPECT_GT(listed, 0u);
  selector.ResetCounts();
  EXPECT_EQ(selector.counts()[0].predicted, 0u);
}

TEST(PredictorSelectorTest, ChargesWhatItSays) {
  for (const int64_t experts : {0, 3}) {
    TestPredictors p(300, 32, experts, DType::kF32);
    p.predictors.spec.input = PredictorInput::kResidual;
    Budget budget;
    Compute compute("auto", 1);
    const PredictorSelector selector(p.model, p.predictors, compute, budget, 17, 5);
    EXPECT_EQ(budget.used_bytes(),
              PredictorSelector::ChargedBytes(p.model, p.predictors.spec, 17, 5));
  }
  Budget tight(1000);
  const TestPredictors p(300, 32, 0, DType::kF32);
  Compute compute("auto", 1);
  EXPECT_THROW(PredictorSelector(p.model, p.predictors, compute, tight, 17), Error);
}

TEST(PredictorSelectorTest, WithoutPredictorsItTakesNoMemory) {
  ModelSpec model;
  model.num_layers = 1;
  model.layers.resize(1);
  PredictorSpec spec;
  spec.ranks = {0};
  spec.thresholds = {0};
  ModelPredictors predictors;
  DeclarePredictors(spec, model, predictors);
  Budget budget;
  Compute compute("auto", 1);
  const PredictorSelector selector(model, predictors, compute, budget, 17);
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(PredictorSelector::ChargedBytes(model, spec, 17), 0u);
}

}  // namespace
}  // namespace hearth
