#include "pass/math/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hearth {
namespace {

RopeSpec Spec(int64_t dims, double base) {
  RopeSpec rope;
  rope.dims = dims;
  rope.base = base;
  return rope;
}

TEST(RopeTableTest, FrequenciesFallGeometrically) {
  const auto f = RopeFrequencies(Spec(8, 10000), {});
  ASSERT_EQ(f.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(f[i], std::pow(10000.0, -static_cast<double>(i) / 4));
  }
}

TEST(RopeTableTest, LinearScalingAndFactorsDivide) {
  RopeSpec rope = Spec(8, 500);
  const auto plain = RopeFrequencies(rope, {});
  rope.scaling = RopeScalingKind::kLinear;
  rope.factor = 4;
  const std::vector<float> factors = {1, 2, 4, 8};
  const auto scaled = RopeFrequencies(rope, factors);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 4 / static_cast<double>(factors[i]));
  }
}

TEST(RopeTableTest, YarnLeavesFastPairsAndInterpolatesSlowOnes) {
  RopeSpec rope = Spec(128, 10000);
  const auto plain = RopeFrequencies(rope, {});
  rope.scaling = RopeScalingKind::kYarn;
  rope.factor = 8;
  rope.original_context = 4096;
  const auto yarn = RopeFrequencies(rope, {});
  EXPECT_DOUBLE_EQ(yarn.front(), plain.front());
  EXPECT_DOUBLE_EQ(yarn.back(), plain.back() / 8);
  double last_share = 1;
  for (size_t i = 0; i < yarn.size(); ++i) {
    const double share = yarn[i] / plain[i];
    EXPECT_LE(share, last_share + 1e-12) << "ever more interpolation";
    last_share = share;
  }
}

}  // namespace
}  // namespace hearth
