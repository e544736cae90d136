#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernels/dequantize.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(RowBytes(dtype, x.size()));
  Quantize(dtype, x.data(), n, bytes.data());
  std::vector<float> out(x.size());
  Dequantize(dtype, bytes.data(), n, out.data());
  return out;
}

struct BlockStats {
  double amax;
  double range;
};

// The bounds that dequantize.h states.
double BoundOf(DType dtype, const BlockStats& stats) {
  switch (dtype) {
    case DType::kQ4_0:
      return stats.amax / 8 * (1 + 0x1p-8) + 0x1p-21;
    case DType::kQ4_1:
      return stats.range / 30 + stats.range * 0x1p-10 + stats.amax * 0x1p-11 + 0x1p-20;
    default:
      return stats.amax / 254 + stats.amax * 0x1p-10 + 0x1p-18;
  }
}

void CheckBounds(DType dtype, const std::vector<float>& x) {
  const std::vector<float> y = RoundTrip(dtype, x);
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const auto [min, max] = std::minmax_element(&x[begin], &x[begin] + 32);
    const BlockStats stats = {std::max(std::abs(double{*min}), std::abs(double{*max})),
                              double{*max} - double{*min}};
    const double bound = BoundOf(dtype, stats);
    for (size_t i = begin; i < begin + 32; ++i) {
      ASSERT_LE(std::abs(double{x[i]} - double{y[i]}), bound)
          << NameOf(dtype) << " of " << x[i] << " in a block of " << *min << " to " << *max;
    }
  }
}

constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};

TEST(Quantize, StaysWithinItsBounds) {
  std::mt19937 random(7);
  std::vector<float> x(32 * 64);
  // From where scales are subnormal halves, or nothing at all, to the largest halves.
  for (int exponent = -60; exponent <= 15; ++exponent) {
    std::normal_distribution<float> normal(0, std::ldexp(0.25f, exponent));
    std::uniform_real_distribution<float> uniform(-std::ldexp(1.0f, exponent),
                                                  std::ldexp(1.0f, exponent));
    for (const DType dtype : kBlockTypes) {
      for (float& value : x) value = normal(random);
      CheckBounds(dtype, x);
      for (float& value : x) value = uniform(random);
      CheckBounds(dtype, x);
      for (float& value : x) value = std::abs(uniform(random));
      CheckBounds(dtype, x);
    }
  }
}

TEST(Quantize, StaysWithinItsBoundsForUnevenBlocks) {
  std::mt19937 random(8);
  for (const DType dtype : kBlockTypes) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> x(32, 0.0f);
      std::normal_distribution<float> normal;
      // One outlier; all equal; two values; an offset far larger than the range.
      x[random() % 32] = normal(random) * 100;
      CheckBounds(dtype, x);
      std::fill(x.begin(), x.end(), normal(random));
      CheckBounds(dtype, x);
      for (float& value : x) value = random() % 2 == 0 ? 1.0f : -1.0f;
      CheckBounds(dtype, x);
      for (float& value : x) value = 1000 + normal(random);
      CheckBounds(dtype, x);
    }
  }
}

TEST(Quantize, KeepsExtremesOfBlocks) {
  std::vector<float> x(32, 0.0f);
  x[5] = -4.0f;  // code 0 of Q4_0: a scale of 0.5 that a half holds exactly
  EXPECT_EQ(RoundTrip(DType::kQ4_0, x)[5], -4.0f);
  x[5] = 4.0f;
  EXPECT_EQ(RoundTrip(DType::kQ4_0, x)[5], 4.0f);
  x[5] = 15.0f;
  x[6] = -7.5f;  // a scale of 1.5 and a minimum of -7.5
  EXPECT_EQ(RoundTrip(DType::kQ4_1, x)[5], 15.0f);
  EXPECT_EQ(RoundTrip(DType::kQ4_1, x)[6], -7.5f);
  x[5] = 127.0f;
  x[6] = -127.0f;
  EXPECT_EQ(RoundTrip(DType::kQ8_0, x)[5], 127.0f);
  EXPECT_EQ(RoundTrip(DType::kQ8_0, x)[6], -127.0f);
}

TEST(Quantize, RoundsHalvesAwayFromZeroInQ8_0) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // a scale of 1
  x[1] = 2.5f;
  x[2] = -2.5f;
  x[3] = std::nextafter(0.5f, 0.0f);
  BlockQ8_0 block;
  Quantize(DType::kQ8_0, x.data(), 32, reinterpret_cast<std::byte*>(&block));
  EXPECT_EQ(block.qs[1], 3);
  EXPECT_EQ(block.qs[2], -3);
  EXPECT_EQ(block.qs[3], 0);
}

TEST(Quantize, KeepsZeros) {
  const std::vector<float> zeros(64, 0.0f);
  for (const DType dtype : kBlockTypes) EXPECT_EQ(RoundTrip(dtype, zeros), zeros);
  // Too small for the scale: zero as well, never infinity or NaN.
  for (const float tiny : {1e-45f, -1e-40f, 1e-10f}) {
    const std::vector<float> x(32, tiny);
    for (const DType dtype : kBlockTypes) EXPECT_EQ(RoundTrip(dtype, x)[0], 0.0f) << tiny;
  }
}

TEST(Quantize, MakesTheBestOfInfinityAndNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : kBlockTypes) {
    for (const auto& special : std::vector<std::vector<float>>{
             {nan}, {kInf}, {-kInf}, {kInf, -kInf, nan}, {kMax, -kMax}, {nan, 1.0f}}) {
      std::vector<float> x(32, 0.5f);
      std::copy(special.begin(), special.end(), x.begin());
      for (const float value : RoundTrip(dtype, x)) EXPECT_TRUE(std::isfinite(value));
    }
    std::vector<float> x(32, 1.0f);
    x[9] = nan;
    EXPECT_NEAR(RoundTrip(dtype, x)[9], 0.0f, 0.01f);
    EXPECT_NEAR(RoundTrip(dtype, x)[8], 1.0f, 0.01f);
    x[9] = kInf;
    EXPECT_GE(RoundTrip(dtype, x)[9], 65000.0f);
    x[9] = -kInf;
    EXPECT_LE(RoundTrip(dtype, x)[9], -65000.0f);
    std::fill(x.begin(), x.end(), nan);
    EXPECT_EQ(RoundTrip(dtype, x), std::vector<float>(32, 0.0f));
  }
}

TEST(Quantize, RoundsPlainTypesToNearest) {
  const std::vector<float> x = {0.1f, -1.0f, 65504.0f, 1e-8f, 1e6f};
  EXPECT_EQ(RoundTrip(DType::kF32, x), x);
  const std::vector<float> half = RoundTrip(DType::kF16, x);
  EXPECT_EQ(half[0], HalfToFloat(FloatToHalf(0.1f)));
  EXPECT_EQ(half[2], 65504.0f);
  EXPECT_EQ(half[4], std::numeric_limits<float>::infinity());
  const std::vector<float> bf16 = RoundTrip(DType::kBF16, x);
  EXPECT_NEAR(bf16[4], 1e6f, 1e6f / 256);
  EXPECT_EQ(bf16[1], -1.0f);
}

TEST(Quantize, IsDeterministicAndNeedsNoAlignment) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(512);
  for (float& value : x) value = normal(random);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const size_t bytes = RowBytes(dtype, x.size());
    std::vector<std::byte> first(bytes);
    std::vector<std::byte> second(bytes + 1);
    Quantize(dtype, x.data(), 512, first.data());
    // In two halves, one byte off.
    Quantize(dtype, x.data(), 256, second.data() + 1);
    Quantize(dtype, x.data() + 256, 256, second.data() + 1 + bytes / 2);
    EXPECT_EQ(std::memcmp(first.data(), second.data() + 1, bytes), 0);
  }
}

TEST(Quantize, SaysWhatItCanMake) {
  int count = 0;
  for (int i = 0; i < kNumDTypes; ++i) count += CanQuantize(static_cast<DType>(i)) ? 1 : 0;
  EXPECT_EQ(count, 6);
  // Others become zeros rather than garbage.
  std::vector<float> x(256, 1.0f);
  std::vector<std::byte> out(sizeof(BlockQ6_K), std::byte{0xff});
  Quantize(DType::kQ6_K, x.data(), 256, out.data());
  EXPECT_EQ(out, std::vector<std::byte>(sizeof(BlockQ6_K)));
}

}  // namespace
}  // namespace hearth::kernels
