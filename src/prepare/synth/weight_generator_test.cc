#include "prepare/synth/weight_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/dequantize.h"
#include "tensor/blocks.h"

namespace hearth {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                            DType::kQ4_0, DType::kQ4_1, DType::kQ8_0};
constexpr size_t kCount = size_t{1} << 18;

std::vector<std::byte> Draw(const WeightGenerator& generator, DType dtype,
                            WeightDistribution distribution, uint64_t tensor = 0,
                            uint64_t chunk = 0, size_t count = kCount) {
  std::vector<std::byte> bytes(RowBytes(dtype, count));
  generator.Fill(dtype, distribution, tensor, chunk, bytes);
  return bytes;
}

std::vector<float> DrawFloats(DType dtype, WeightDistribution distribution, uint64_t seed = 1) {
  const WeightGenerator generator(seed);
  const std::vector<std::byte> bytes = Draw(generator, dtype, distribution);
  std::vector<float> out(kCount);
  kernels::Dequantize(dtype, bytes.data(), kCount, out.data());
  return out;
}

struct Moments {
  double mean = 0, std = 0, skew = 0, kurtosis = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  for (const float v : values) m.mean += v / n;
  double square = 0;
  for (const float v : values) {
    const double d = v - m.mean;
    square += d * d / n;
    m.skew += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
  }
  m.std = std::sqrt(square);
  m.skew /= square * m.std;
  m.kurtosis /= square * square;
  return m;
}

TEST(WeightGeneratorTest, LooksNormalInEveryType) {
  const double std = 0.0156;
  const double root_n = std::sqrt(static_cast<double>(kCount));
  for (const DType dtype : kTypes) {
    const Moments m = MomentsOf(DrawFloats(dtype, {0, std}));
    EXPECT_NEAR(m.mean, 0, 5 * std / root_n) << NameOf(dtype);
    EXPECT_NEAR(m.std, std, 0.01 * std) << NameOf(dtype);
    EXPECT_NEAR(m.skew, 0, 5 * std::sqrt(6.0) / root_n) << NameOf(dtype);
    EXPECT_NEAR(m.kurtosis, 2.9, 0.15) << NameOf(dtype);
  }
}

TEST(WeightGeneratorTest, FloatTypesHaveTheMeanAsked) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Moments m = MomentsOf(DrawFloats(dtype, {1.5, 0.05}));
    EXPECT_NEAR(m.mean, 1.5, 2e-3) << NameOf(dtype);  // BF16 has 8 bits
    EXPECT_NEAR(m.std, 0.05, 1e-3) << NameOf(dtype);
  }
}

TEST(WeightGeneratorTest, FloatsAreQuantilesOfTheNormalDistribution) {
  const std::vector<float> values = DrawFloats(DType::kF32, {0, 1});
  const auto n = static_cast<double>(values.size());
  for (const double z : {-2.5, -1.0, -0.3, 0.0, 0.7, 1.9, 3.0}) {
    const auto below = std::count_if(values.begin(), values.end(),
                                     [&](float v) { return v < static_cast<float>(z); });
    const double p = 0.5 * std::erfc(-z / std::sqrt(2.0));
    EXPECT_NEAR(static_cast<double>(below) / n, p, 5 * std::sqrt(p * (1 - p) / n) + 3e-4) << z;
  }
}

// Blocks as a quantizer leaves them: the whole range of codes is used.
TEST(WeightGeneratorTest, BlocksUseTheirRange) {
  const WeightGenerator generator(3);
  const size_t num_blocks = kCount / 32;
  const std::vector<std::byte> q4_0 = Draw(generator, DType::kQ4_0, {0, 1});
  const std::vector<std::byte> q4_1 = Draw(generator, DType::kQ4_1, {0, 1});
  const std::vector<std::byte> q8_0 = Draw(generator, DType::kQ8_0, {0, 1});
  for (size_t b = 0; b < num_blocks; ++b) {
    const auto has_code = [](const uint8_t* qs, int code) {
      return std::any_of(qs, qs + 16,
                         [&](uint8_t pair) { return (pair & 15) == code || pair >> 4 == code; });
    };
    BlockQ4_0 block_q4_0;
    std::memcpy(&block_q4_0, q4_0.data() + b * sizeof(block_q4_0), sizeof(block_q4_0));
    ASSERT_TRUE(has_code(block_q4_0.qs, 0));
    BlockQ4_1 block_q4_1;
    std::memcpy(&block_q4_1, q4_1.data() + b * sizeof(block_q4_1), sizeof(block_q4_1));
    ASSERT_TRUE(has_code(block_q4_1.qs, 0) && has_code(block_q4_1.qs, 15));
    BlockQ8_0 block_q8_0;
    std::memcpy(&block_q8_0, q8_0.data() + b * sizeof(block_q8_0), sizeof(block_q8_0));
    ASSERT_TRUE(std::any_of(block_q8_0.qs, block_q8_0.qs + 32,
                            [](int8_t q) { return q == 127 || q == -127; }));
    ASSERT_TRUE(
        std::none_of(block_q8_0.qs, block_q8_0.qs + 32, [](int8_t q) { return q == -128; }));
  }
}

TEST(WeightGeneratorTest, EveryArgumentMatters) {
  const WeightGenerator generator(1);
  for (const DType dtype : kTypes) {
    const std::vector<std::byte> first = Draw(generator, dtype, {0, 1}, 0, 0, 1024);
    EXPECT_EQ(first, Draw(generator, dtype, {0, 1}, 0, 0, 1024));
    EXPECT_EQ(first, Draw(WeightGenerator(1), dtype, {0, 1}, 0, 0, 1024));
    EXPECT_NE(first, Draw(generator, dtype, {0, 1}, 1, 0, 1024));
    EXPECT_NE(first, Draw(generator, dtype, {0, 1}, 0, 1, 1024));
    EXPECT_NE(first, Draw(WeightGenerator(2), dtype, {0, 1}, 0, 0, 1024));
  }
}

TEST(WeightGeneratorTest, StreamsAreUncorrelated) {
  const WeightGenerator generator(5);
  std::vector<float> a(kCount), b(kCount);
  generator.Fill(DType::kF32, {0, 1}, 7, 0, std::as_writable_bytes(std::span(a)));
  generator.Fill(DType::kF32, {0, 1}, 7, 1, std::as_writable_bytes(std::span(b)));
  const auto n = static_cast<double>(kCount);
  double between = 0, within = 0;
  for (size_t i = 0; i + 1 < kCount; ++i) {
    between += a[i] * b[i] / n;
    within += a[i] * a[i + 1] / n;
  }
  EXPECT_NEAR(between, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(within, 0, 5 / std::sqrt(n));
}

TEST(WeightGeneratorTest, AnyCountOfFloats) {
  const WeightGenerator generator(1);
  const std::vector<std::byte> longer = Draw(generator, DType::kF32, {0, 1}, 0, 0, 16);
  for (size_t count = 1; count < 10; ++count) {
    std::vector<std::byte> bytes(count * sizeof(float) + 4, std::byte{0xee});
    generator.Fill(DType::kF32, {0, 1}, 0, 0, std::span(bytes).first(count * sizeof(float)));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end() - 4, longer.begin())) << count;
    EXPECT_EQ(bytes[count * sizeof(float)], std::byte{0xee}) << count;
  }
}

TEST(WeightGeneratorTest, KnowsWhatItCanMake) {
  for (const DType dtype : kTypes) EXPECT_TRUE(CanSynthesize(dtype));
  EXPECT_FALSE(CanSynthesize(DType::kQ4_K));
  EXPECT_FALSE(CanSynthesize(DType::kI8));
}

}  // namespace
}  // namespace hearth
