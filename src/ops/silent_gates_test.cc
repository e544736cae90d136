#include "ops/silent_gates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/compute.h"

namespace hearth {
namespace {

TEST(SilentGatesTest, TheReluFamilyFiresAboveOneBound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const FfnActivation activation : {FfnActivation::kRelu, FfnActivation::kDRelu}) {
    const SilentGates silent = SilentGatesOf(activation, 0.5f);
    EXPECT_TRUE(silent.Contains(0));
    EXPECT_TRUE(silent.Contains(-1e30f));
    EXPECT_FALSE(silent.Contains(1e-40f));
    EXPECT_FALSE(silent.Contains(nan));
  }
  const SilentGates fat = SilentGatesOf(FfnActivation::kFatRelu, 0.5f);
  EXPECT_TRUE(fat.Contains(0.5f));
  EXPECT_FALSE(fat.Contains(0.50001f));
}

// What is left out gives zero on every instruction set, and little that gives zero is not left out.
TEST(SilentGatesTest, WhatAThresholdedSiluLeavesOutGivesZero) {
  constexpr auto kKind = FfnActivation::kThresholdedSilu;
  for (const float threshold : {0.0f, 1e-6f, 0.02f, 0.15f, 0.278f, 0.2785f, 0.3f, 5.0f}) {
    const SilentGates silent = SilentGatesOf(kKind, threshold);
    EXPECT_FALSE(silent.Contains(std::numeric_limits<float>::quiet_NaN()));
    std::vector<float> gates, out(10000), ups(10000, 1e6f);
    for (int i = 0; i < 10000; ++i) gates.push_back(static_cast<float>(i - 5000) * 2e-3f);
    for (const std::string& isa : UsableIsaNames()) {
      Compute compute(isa, 1);
      compute.kernels().ffn_activation[static_cast<size_t>(kKind)](gates.data(), ups.data(), 10000,
                                                                   threshold, out.data());
      int zeros = 0, found = 0;
      for (size_t i = 0; i < gates.size(); ++i) {
        ASSERT_TRUE(out[i] == 0.0f || !silent.Contains(gates[i]))
            << isa << " " << threshold << " " << gates[i];
        zeros += out[i] == 0.0f ? 1 : 0;
        found += silent.Contains(gates[i]) ? 1 : 0;
      }
      EXPECT_GE(found, zeros - zeros / 100 - 1) << isa << " " << threshold;
    }
  }
}

}  // namespace
}  // namespace hearth
