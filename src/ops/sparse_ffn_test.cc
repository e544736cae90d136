// FFNs by single neurons against the formula in double, and the promises about order: threads,
// lists and skipping change no bit.
#include "ops/sparse_ffn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "ops/test_rows.h"

namespace hearth {
namespace {

constexpr FfnActivation kActivations[] = {FfnActivation::kSilu,
                                          FfnActivation::kRelu,
                                          FfnActivation::kFatRelu,
                                          FfnActivation::kDRelu,
                                          FfnActivation::kThresholdedSilu,
                                          FfnActivation::kGelu,
                                          FfnActivation::kGeluErf,
                                          FfnActivation::kClampedSwiglu};

// Gated, or of two matrices with biases.
class FfnProblem {
 public:
  FfnProblem(DType dtype, int64_t hidden, int64_t neurons, FfnActivation activation, uint32_t seed,
             bool is_gated = true)
      : random_(seed),
        gate_(dtype, hidden, neurons, random_, !is_gated),
        up_(dtype, hidden, neurons, random_),
        down_(dtype, hidden, neurons, random_),
        x_(static_cast<size_t>(hidden)) {
    // Numbers that quantizing to 8 bits, 127 the largest of each block, leaves as they are.
    for (size_t i = 0; i < x_.size(); ++i) {
      const int code = i % 32 == 5 ? 127 : static_cast<int>(random_() % 255) - 127;
      x_[i] = static_cast<float>(code) / 64;
    }
    ffn_ = {gate_.view, is_gated ? up_.view : RowsView{}, down_.view, activation, 0.2f};
  }

  std::vector<float> Run(int threads, std::optional<std::span<const int32_t>> listed, bool skip,
                         const char* isa = "auto") {
    Budget budget(uint64_t{1} << 30);
    Compute compute(isa, threads);
    SparseFfn ffn(budget, ffn_.gate.cols, ffn_.gate.rows);
    std::vector<float> out(x_.size(), 123.0f);
    counts = ffn.Activate(compute, ffn_, x_.data(), listed, skip);
    ffn.AddDown(compute, ffn_, out.data());
    active.assign(ffn.active().begin(), ffn.active().end());
    fired.clear();
    ffn.ListFired(fired);
    return out;
  }

  // In double.
  std::vector<double> Expected() const {
    std::vector<double> out(x_.size());
    for (size_t j = 0; j < gate_.weights.size(); ++j) {
      double g = 0, u = 0;
      for (size_t i = 0; i < x_.size(); ++i) {
        g += double{gate_.weights[j][i]} * x_[i];
        u += double{up_.weights[j][i]} * x_[i];
      }
      const double a = ffn_.is_gated() ? Activate(g, u) : Activate(g + double{gate_.biases[j]}, 1);
      for (size_t i = 0; i < x_.size(); ++i) out[i] += a * down_.weights[j][i];
    }
    return out;
  }

  SparseFfnCounts counts;
  std::vector<int32_t> active, fired;

 private:
  double Activate(double g, double u) const {
    switch (ffn_.activation) {
      case FfnActivation::kSilu:
        return g / (1 + std::exp(-g)) * u;
      case FfnActivation::kRelu:
        return std::max(g, 0.0) * u;
      case FfnActivation::kFatRelu:
        return g > double{ffn_.threshold} ? g * u : 0;
      case FfnActivation::kDRelu:
        return std::max(g, 0.0) * std::max(u, 0.0);
      case FfnActivation::kThresholdedSilu: {
        const double silu = g / (1 + std::exp(-g));
        return std::abs(silu) > double{ffn_.threshold} ? silu * u : 0;
      }
      case FfnActivation::kClampedSwiglu: {
        const double t = ffn_.threshold, most = std::min(g, t);
        return most / (1 + std::exp(-1.702 * most)) * (std::clamp(u, -t, t) + 1);
      }
      case FfnActivation::kGeluErf:
        return 0.5 * g * std::erfc(-g / std::numbers::sqrt2) * u;
      case FfnActivation::kGelu:
        return 0.5 * g *
               (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g))) * u;
    }
    return 0;
  }

  std::mt19937 random_;
  testing::TestRows gate_, up_, down_;
  std::vector<float> x_;
  FfnNeurons ffn_;
};

double RelativeError(const std::vector<float>& actual, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

TEST(SparseFfnTest, ComputesTheFormula) {
  uint32_t seed = 1;
  for (const FfnActivation activation : kActivations) {
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
      for (const int64_t hidden : {32, 160, 544, 1024}) {
        for (const bool is_gated : {true, false}) {
          FfnProblem problem(dtype, hidden, 77, activation, seed++, is_gated);
          EXPECT_LT(RelativeError(problem.Run(2, std::nullopt, false), problem.Expected()), 1e-5)
              << NameOf(dtype) << " " << hidden << " " << static_cast<int>(activation) << " "
              << is_gated;
        }
      }
    }
  }
}

TEST(SparseFfnTest, ThreadsListsAndSkippingChangeNoBit) {
  uint32_t seed = 100;
  for (const FfnActivation activation : kActivations) {
    for (const int64_t neurons : {1, 15, 16, 17, 300}) {
      // Both kinds of rows.
      const DType dtype = seed % 2 == 0 ? DType::kQ4_0 : DType::kF16;
      FfnProblem problem(dtype, 1184, neurons, activation, seed, seed % 3 != 0);
      ++seed;
      const std::vector<float> dense = problem.Run(1, std::nullopt, false);
      EXPECT_EQ(problem.counts.gate, neurons);
      EXPECT_EQ(problem.counts.active, neurons);
      for (const int threads : {1, 2, 3, 5}) {
        EXPECT_EQ(problem.Run(threads, std::nullopt, false), dense) << threads;
        EXPECT_EQ(problem.Run(threads, std::nullopt, true), dense) << threads;
        const std::vector<int32_t> active = problem.active;
        const SparseFfnCounts gated = problem.counts;
        EXPECT_TRUE(std::is_sorted(active.begin(), active.end()));
        EXPECT_EQ(gated.active, static_cast<int64_t>(active.size()));
        if (CanSkipNeurons(activation) && neurons == 300) {
          EXPECT_LT(gated.up, neurons);
          EXPECT_GE(gated.up, gated.active);
          EXPECT_EQ(static_cast<int64_t>(problem.fired.size()), gated.up);
          EXPECT_TRUE(std::includes(problem.fired.begin(), problem.fired.end(), active.begin(),
                                    active.end()));
        }
        // An oracle that names just these.
        EXPECT_EQ(problem.Run(threads, active, true), dense) << threads;
        EXPECT_EQ(problem.counts.gate, gated.active);
      }
    }
  }
}

TEST(SparseFfnTest, NoNeuronsGiveZeros) {
  FfnProblem problem(DType::kQ8_0, 64, 20, FfnActivation::kRelu, 5);
  EXPECT_EQ(problem.Run(2, std::span<const int32_t>(), true), std::vector<float>(64, 0.0f));
  EXPECT_EQ(problem.counts.active, 0);
}

TEST(SparseFfnTest, InstructionSetsAgree) {
  for (const FfnActivation activation : kActivations) {
    for (const DType dtype : {DType::kQ4_1, DType::kF16}) {
      FfnProblem problem(dtype, 2080, 200, activation, 9);
      const std::vector<float> oracle = problem.Run(1, std::nullopt, true, "scalar");
      const std::vector<double> expected(oracle.begin(), oracle.end());
      for (const std::string& isa : UsableIsaNames()) {
        EXPECT_LT(RelativeError(problem.Run(2, std::nullopt, true, isa.c_str()), expected), 1e-5)
            << isa << " " << NameOf(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace hearth
