// Norm, RoPE, softmax, activations and additions of every table against the scalar oracle.
#include "kernels/test_util.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;
using testing::kFloatEpsilon;
using testing::Placement;
using testing::RandomFloats;

// Every tail of up to 16 lanes, with and without whole and fourfold vectors before it.
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 50; ++n) sizes.push_back(n);
  for (int64_t n : {63, 64, 65, 100, 127, 128, 257, 1000, 4096}) sizes.push_back(n);
  return sizes;
}

class ElementwiseTest : public testing::TableTest {
 protected:
  std::mt19937 random_{42};
};

TEST_P(ElementwiseTest, Add) {
  for (int64_t n : Sizes()) {
    for (Placement placement : {Placement::kAtEnd, Placement::kAtStart}) {
      GuardedArray<float> a(RandomFloats(random_, n, DataKind::kMixed), placement);
      const std::vector<float> before = RandomFloats(random_, n, DataKind::kMixed);
      GuardedArray<float> out(before, placement);
      table().add(a.data(), n, out.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[i], before[static_cast<size_t>(i)] + a[i]);
    }
  }
}

TEST_P(ElementwiseTest, ScaledAdd) {
  for (int64_t n : Sizes()) {
    for (DataKind kind : testing::kAllDataKinds) {
      GuardedArray<float> a(RandomFloats(random_, n, kind));
      const std::vector<float> before = RandomFloats(random_, n, kind);
      GuardedArray<float> out(before);
      std::vector<float> expected = before;
      table().scaled_add(a.data(), -1.75f, n, out.data());
      oracle().scaled_add(a.data(), -1.75f, n, expected.data());
      for (int64_t i = 0; i < n; ++i) {
        const size_t j = static_cast<size_t>(i);
        const double size = std::abs(1.75 * a[i]) + std::abs(before[j]);
        ASSERT_NEAR(out[i], expected[j], 2 * kFloatEpsilon * size + 0x1p-149) << n << " " << i;
      }
    }
  }
}

// What an element becomes must not depend on its place, or sparse and dense sums would differ.
TEST_P(ElementwiseTest, ResultsDoNotDependOnPosition) {
  const int64_t n = 45;
  const std::vector<float> a = RandomFloats(random_, n);
  const std::vector<float> b = RandomFloats(random_, n);
  std::vector<float> whole = b;
  table().scaled_add(a.data(), 0.3f, n, whole.data());
  std::vector<float> silu(static_cast<size_t>(n));
  table().ffn_activation[0](a.data(), b.data(), n, 0.0f, silu.data());
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    float single = b[i];
    table().scaled_add(&a[i], 0.3f, 1, &single);
    ASSERT_EQ(single, whole[i]) << i;
    table().ffn_activation[0](&a[i], &b[i], 1, 0.0f, &single);
    ASSERT_EQ(single, silu[i]) << i;
  }
}

TEST_P(ElementwiseTest, RmsNorm) {
  for (int64_t n : Sizes()) {
    if (n == 0) continue;
    for (DataKind kind : testing::kAllDataKinds) {
      const std::vector<float> x = RandomFloats(random_, n, kind);
      GuardedArray<float> in_place(x);
      GuardedArray<float> weight(RandomFloats(random_, n));
      GuardedArray<float> out(n);
      std::vector<float> expected(static_cast<size_t>(n));
      oracle().rms_norm(x.data(), weight.data(), n, 1e-5f, expected.data());
      table().rms_norm(in_place.data(), weight.data(), n, 1e-5f, out.data());
      // A lane of the narrowest table adds n/16 squares in each of its four sums; the root halves
      // that. Then come mean, root, reciprocal and two products.
      const double relative = (static_cast<double>(n) / 32 + 12) * kFloatEpsilon;
      for (int64_t i = 0; i < n; ++i) {
        const float e = expected[static_cast<size_t>(i)];
        ASSERT_NEAR(out[i], e, std::abs(e) * relative + 0x1p-148) << n << " " << i;
      }
      table().rms_norm(in_place.data(), weight.data(), n, 1e-5f, in_place.data());
      ASSERT_TRUE(testing::SameBits(in_place.data(), out.data(), out.size() * sizeof(float)));
    }
  }
}

TEST_P(ElementwiseTest, RopeInBothLayouts) {
  for (int64_t pairs = 0; pairs <= 70; ++pairs) {
    std::vector<float> cos;
    std::vector<float> sin;
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = 17.0 * std::pow(10000.0, -static_cast<double>(i) / 35);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
    GuardedArray<float> guarded_cos(cos);
    GuardedArray<float> guarded_sin(sin);
    for (RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalves}) {
      const std::vector<float> before = RandomFloats(random_, 2 * pairs);
      std::vector<float> expected = before;
      GuardedArray<float> x(before);
      oracle().rope(expected.data(), cos.data(), sin.data(), pairs, layout);
      table().rope(x.data(), guarded_cos.data(), guarded_sin.data(), pairs, layout);
      for (int64_t i = 0; i < 2 * pairs; ++i) {
        const int64_t partner = layout == RopeLayout::kAdjacent ? i ^ 1 : (i + pairs) % (2 * pairs);
        const double size = std::abs(before[static_cast<size_t>(i)]) +
                            std::abs(before[static_cast<size_t>(partner)]);
        ASSERT_NEAR(x[i], expected[static_cast<size_t>(i)], 2 * kFloatEpsilon * size);
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeRotatesThePairsOfItsLayout) {
  const float cos[] = {0.0f, 1.0f};
  const float sin[] = {1.0f, 0.0f};  // pair 0 by 90 degrees, pair 1 not at all
  std::vector<float> adjacent = {1, 2, 3, 4};
  table().rope(adjacent.data(), cos, sin, 2, RopeLayout::kAdjacent);
  EXPECT_EQ(adjacent, (std::vector<float>{-2, 1, 3, 4}));
  std::vector<float> halves = {1, 2, 3, 4};
  table().rope(halves.data(), cos, sin, 2, RopeLayout::kHalves);
  EXPECT_EQ(halves, (std::vector<float>{-3, 2, 1, 4}));
}

TEST_P(ElementwiseTest, Softmax) {
  for (int64_t n : Sizes()) {
    if (n == 0) continue;
    for (float spread : {1.0f, 100.0f}) {
      std::vector<float> x = RandomFloats(random_, n);
      for (float& v : x) v *= spread;
      std::vector<float> expected = x;
      GuardedArray<float> actual(x);
      oracle().softmax(expected.data(), n);
      table().softmax(actual.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        const float e = expected[static_cast<size_t>(i)];
        // The argument of exp is rounded: an error of |x - max| eps in the exponent.
        const double relative = (2 * 5 * spread + static_cast<double>(n) / 4 + 16) * kFloatEpsilon;
        ASSERT_NEAR(actual[i], e, e * relative + 0x1p-125) << n << " " << i;
      }
    }
  }
}

TEST_P(ElementwiseTest, SoftmaxOfExtremes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t n : {1, 3, 8, 17, 40}) {
    std::vector<float> x(static_cast<size_t>(n), -kInfinity);
    x.back() = -100.0f;
    table().softmax(x.data(), n);
    for (size_t i = 0; i + 1 < x.size(); ++i) EXPECT_EQ(x[i], 0.0f);
    EXPECT_EQ(x.back(), 1.0f);
  }
  std::vector<float> far(20, -3e38f);
  far[7] = 3e38f;
  table().softmax(far.data(), 20);
  for (size_t i = 0; i < far.size(); ++i) EXPECT_EQ(far[i], i == 7 ? 1.0f : 0.0f);
}

TEST_P(ElementwiseTest, FfnActivations) {
  for (int kind = 0; kind < kNumFfnActivations; ++kind) {
    for (int64_t n : Sizes()) {
      std::vector<float> g = RandomFloats(random_, n);
      for (size_t i = 0; i < g.size(); ++i) g[i] *= i % 3 == 0 ? 30.0f : 0.2f;
      GuardedArray<float> gate(g);
      GuardedArray<float> up(RandomFloats(random_, n));
      GuardedArray<float> out(n);
      std::vector<float> expected(g.size());
      oracle().ffn_activation[kind](gate.data(), up.data(), n, 0.1f, expected.data());
      table().ffn_activation[kind](gate.data(), up.data(), n, 0.1f, out.data());
      for (int64_t i = 0; i < n; ++i) {
        const float e = expected[static_cast<size_t>(i)];
        if (kind == static_cast<int>(FfnActivation::kSilu) ||
            kind == static_cast<int>(FfnActivation::kThresholdedSilu)) {
          ASSERT_NEAR(out[i], e, std::abs(e) * 16 * kFloatEpsilon + 1e-37) << n << " " << i;
        } else if (kind == static_cast<int>(FfnActivation::kGelu) ||
                   kind == static_cast<int>(FfnActivation::kClampedSwiglu)) {
          // Exponentials of up to 87, whose last bits weigh that much.
          ASSERT_NEAR(out[i], e, std::abs(e) * 512 * kFloatEpsilon + 1e-37) << n << " " << i;
        } else if (kind == static_cast<int>(FfnActivation::kGeluErf)) {
          ASSERT_NEAR(out[i], e, 3e-7f * std::abs(g[static_cast<size_t>(i)] * up[i]) + 1e-37f)
              << n << " " << i;
        } else {
          ASSERT_EQ(out[i], e) << kind << " " << n << " " << i;
        }
      }
      GuardedArray<float> aliased(g);
      table().ffn_activation[kind](aliased.data(), up.data(), n, 0.1f, aliased.data());
      ASSERT_TRUE(testing::SameBits(aliased.data(), out.data(), g.size() * sizeof(float)));
      table().ffn_activation[kind](gate.data(), up.data(), n, 0.1f, up.data());
      ASSERT_TRUE(testing::SameBits(up.data(), out.data(), g.size() * sizeof(float)));
    }
  }
}

TEST_P(ElementwiseTest, SiluOfExtremes) {
  const std::vector<float> g = {-100, 100, -1e30f, 1e30f, -88.8f, 88.8f, 0, -0.0f, 1e-40f, -104};
  const std::vector<float> up(g.size(), 1.0f);
  std::vector<float> out(g.size());
  table().ffn_activation[0](g.data(), up.data(), static_cast<int64_t>(g.size()), 0, out.data());
  for (size_t i = 0; i < g.size(); ++i) {
    const double expected = g[i] / (1 + std::exp(-double{g[i]}));
    EXPECT_NEAR(out[i], expected, std::abs(expected) * 8 * kFloatEpsilon + 1e-35) << g[i];
  }
}

TEST_P(ElementwiseTest, InactiveNeuronsGiveZero) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate = {-1, 0, -0.0f, nan, -kInfinity, -1e-40f, -1, 0, -1};
  const std::vector<float> up = {kInfinity, nan, 3, 4, 5, 6, -kInfinity, -kInfinity, nan};
  std::vector<float> out(gate.size());
  for (FfnActivation kind :
       {FfnActivation::kRelu, FfnActivation::kFatRelu, FfnActivation::kDRelu}) {
    table().ffn_activation[static_cast<int>(kind)](
        gate.data(), up.data(), static_cast<int64_t>(gate.size()), 0.01f, out.data());
    for (float v : out) EXPECT_EQ(v, 0.0f);
  }
  const float active[] = {0.01f, 0.02f};  // FATReLU: above the threshold, not at it
  const float ones[] = {1.0f, 1.0f};
  table().ffn_activation[static_cast<int>(FfnActivation::kFatRelu)](active, ones, 2, 0.01f,
                                                                    out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.02f);
  // Thresholded SiLU, on both sides of zero: silu is -0.278 at -1.28 and at most that below zero.
  const std::vector<float> sides = {-20, -5, -1.28f, -0.2f, 0, 0.2f, 0.5f, nan};
  const std::vector<float> silu = {0, 0, -0.27846f, 0, 0, 0, 0.31123f, 0};
  const std::vector<float> eight(8, 1.0f);
  out.resize(8);
  table().ffn_activation[static_cast<int>(FfnActivation::kThresholdedSilu)](
      sides.data(), eight.data(), 8, 0.2f, out.data());
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(out[i], silu[i], 1e-5f) << sides[i];
}

HEARTH_FOR_ALL_TABLES(ElementwiseTest);

}  // namespace
}  // namespace hearth::kernels
