// Neurons that fire, found by their gates alone, against the operator that computes them whole.
#include "ops/gate_scan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ops/sparse_ffn.h"
#include "ops/test_rows.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

TEST(GateScan, FindsWhoSparseFfnMultipliesWithTheSameGates) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr int64_t kHidden = 224;
  for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kF16}) {
    for (const int64_t neurons : {1, 31, 33, 500}) {
      const testing::TestRows gate(dtype, kHidden, neurons, random);
      const testing::TestRows up(dtype, kHidden, neurons, random);
      std::vector<float> x(kHidden);
      for (float& value : x) value = normal(random);
      std::vector<int32_t> some;
      for (int32_t n = 0; n < neurons; n += 1 + n % 3) some.push_back(n);
      for (const int threads : {1, 2, 4}) {
        for (const bool lists : {false, true}) {
          Budget budget(uint64_t{1} << 28);
          Compute compute("auto", threads);
          std::optional<std::span<const int32_t>> list;
          if (lists) list = some;
          const FfnNeurons ffn = {gate.view, up.view, up.view, FfnActivation::kThresholdedSilu,
                                  0.1f};
          SparseFfn whole(budget, kHidden, neurons);
          whole.Activate(compute, ffn, x.data(), list, true);
          std::vector<int32_t> expected;
          whole.ListFired(expected);

          std::vector<kernels::GroupQ8> groups(static_cast<size_t>(RowGroupCount(kHidden)));
          const NeuronInput input = PrepareInput(compute.kernels(), ffn, x.data(), groups.data());
          const SilentGates silent = SilentGatesOf(ffn.activation, ffn.threshold);
          GateScan scan(budget, neurons);
          scan.Run(compute, ffn.gate, input, list, &silent);
          EXPECT_EQ(std::vector<int32_t>(scan.fired().begin(), scan.fired().end()), expected);
          std::vector<float> gates(expected.size());
          MultiplyGates(compute.kernels(), ffn.gate, input, expected.data(),
                        static_cast<int64_t>(expected.size()), gates.data());
          EXPECT_EQ(std::vector<float>(scan.gates().begin(), scan.gates().end()), gates);

          scan.Run(compute, ffn.gate, input, list, nullptr);
          EXPECT_EQ(std::ssize(scan.fired()), lists ? std::ssize(some) : neurons);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hearth
