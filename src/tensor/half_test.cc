#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace hearth {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;

// The value of a half by the definition of binary16, in double.
double HalfByDefinition(uint16_t h) {
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 0x3ff;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsNanHalf(uint16_t h) { return (h & 0x7fff) > 0x7c00; }

// The half nearest to `f`, ties to the even one, found by walking from a half on either side.
uint16_t NearestHalf(float f, uint16_t below) {
  const auto above = static_cast<uint16_t>(below + 1);
  const double value = std::abs(double{f});
  const double low = HalfByDefinition(below);
  // The step beyond the largest half rounds as if there were one more, which is infinity.
  const double high = above == 0x7c00 ? 65536.0 : HalfByDefinition(above);
  uint16_t magnitude = value - low < high - value ? below : above;
  if (value - low == high - value) magnitude = (below & 1) == 0 ? below : above;
  return static_cast<uint16_t>(magnitude | (std::signbit(f) ? 0x8000 : 0));
}

TEST(Half, ConvertsEveryHalfToItsValue) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = HalfToFloat(h);
    if (IsNanHalf(h)) {
      EXPECT_TRUE(std::isnan(f)) << i;
    } else {
      EXPECT_EQ(double{f}, HalfByDefinition(h)) << i;
      EXPECT_EQ(std::signbit(f), (h & 0x8000) != 0) << i;
    }
  }
}

TEST(Half, ReturnsEveryHalfUnchanged) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const uint16_t back = FloatToHalf(HalfToFloat(h));
    if (IsNanHalf(h)) {
      EXPECT_TRUE(IsNanHalf(back)) << i;
      EXPECT_EQ(back & 0x8000, h & 0x8000) << i;
    } else {
      EXPECT_EQ(back, h);
    }
  }
}

TEST(Half, RoundsBetweenEveryPairOfNeighboursToNearestEven) {
  // Around the middle of every two neighbours, and around each of them.
  for (uint16_t low = 0; low < 0x7c00; ++low) {
    const double high = low + 1 == 0x7c00 ? 65536.0 : HalfByDefinition(low + 1);
    const auto middle = static_cast<float>((HalfByDefinition(low) + high) / 2);  // exact
    for (const float sign : {1.0f, -1.0f}) {
      for (const float f : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f),
                            std::nextafter(HalfToFloat(low), 1e9f)}) {
        EXPECT_EQ(FloatToHalf(sign * f), NearestHalf(sign * f, low)) << sign * f;
      }
    }
  }
}

TEST(Half, MakesInfinityOfWhatIsTooLarge) {
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToHalf(FloatFromBits(kInfinityBits)), 0x7c00);
  EXPECT_EQ(FloatToHalf(FloatFromBits(kInfinityBits | 0x80000000)), 0xfc00);
}

TEST(Half, MakesZeroOfWhatIsTooSmall) {
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);  // a tie, to even
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(FloatToHalf(-0x1p-26f), 0x8000);
  EXPECT_EQ(FloatToHalf(1e-45f), 0);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(Half, KeepsNan) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u}) {
    EXPECT_TRUE(IsNanHalf(FloatToHalf(FloatFromBits(bits)))) << std::hex << bits;
    const uint16_t b = FloatToBf16(FloatFromBits(bits));
    EXPECT_TRUE(std::isnan(Bf16ToFloat(b))) << std::hex << bits;
  }
}

TEST(Bf16, ReturnsEveryValueUnchanged) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto b = static_cast<uint16_t>(i);
    const float f = Bf16ToFloat(b);
    EXPECT_EQ(BitsFromFloat(f), i << 16);
    if (!std::isnan(f)) {
      EXPECT_EQ(FloatToBf16(f), b);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t bits = random() & 0x7fffffff;
    if (bits >= 0x7f7f0000) continue;  // the largest ones round to infinity
    const float f = FloatFromBits(bits);
    const auto low = static_cast<uint16_t>(bits >> 16);
    const double below = double{f} - double{Bf16ToFloat(low)};
    const double above = double{Bf16ToFloat(static_cast<uint16_t>(low + 1))} - double{f};
    uint16_t expected = below < above ? low : static_cast<uint16_t>(low + 1);
    if (below == above) expected = static_cast<uint16_t>((low + 1) & ~1);
    EXPECT_EQ(FloatToBf16(f), expected) << f;
  }
  EXPECT_EQ(FloatToBf16(FloatFromBits(0x3f808000)), 0x3f80);  // a tie, to even
  EXPECT_EQ(FloatToBf16(FloatFromBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace hearth
