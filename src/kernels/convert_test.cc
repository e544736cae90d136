#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/test_encoders.h"
#include "kernels/test_weights.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

using test_encoders::Encode;

std::vector<float> Decode(DType dtype, const std::vector<std::byte>& bytes, size_t n) {
  std::vector<float> out(n);
  Dequantize(dtype, bytes.data(), static_cast<int64_t>(n), out.data());
  return out;
}

std::vector<float> NormalWeights(size_t n) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

// Root-mean-square difference over root-mean-square reference.
double RelativeError(const std::vector<float>& reference, const std::vector<float>& x) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(double{x[i]} - double{reference[i]}, 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(error / norm);
}

std::vector<float> ConvertAndDecode(DType from, const std::vector<std::byte>& bytes, DType to,
                                    size_t n) {
  std::vector<std::byte> converted(RowBytes(to, n));
  Convert(from, bytes.data(), static_cast<int64_t>(n), to, converted.data());
  return Decode(to, converted, n);
}

struct Conversion {
  DType from;
  DType to;
  double max_error;
  double max_encoder_error;  // of the encoder above, to know that its blocks are real ones
};

class ConvertErrors : public ::testing::TestWithParam<Conversion> {};

TEST_P(ConvertErrors, StayWithinTheTableOfConvertCc) {
  const auto [from, to, max_error, max_encoder_error] = GetParam();
  const std::vector<float> x = NormalWeights(size_t{1} << 18);
  const std::vector<std::byte> bytes = Encode(from, x);
  const std::vector<float> stored = Decode(from, bytes, x.size());
  const double encoder_error = RelativeError(x, stored);
  EXPECT_LE(encoder_error, max_encoder_error);
  const double error = RelativeError(stored, ConvertAndDecode(from, bytes, to, x.size()));
  EXPECT_LE(error, max_error);
  EXPECT_GE(error, max_error * 0.8) << "the table promises too little";
  RecordProperty("encoder_error", std::to_string(encoder_error));
  RecordProperty("conversion_error", std::to_string(error));
}

std::string NameOfConversion(const ::testing::TestParamInfo<Conversion>& test) {
  return std::string(NameOf(test.param.from)) + "_to_" + NameOf(test.param.to);
}

INSTANTIATE_TEST_SUITE_P(Table, ConvertErrors,
                         ::testing::Values(Conversion{DType::kQ5_0, DType::kQ8_0, 0, 0.05},
                                           Conversion{DType::kIQ4_NL, DType::kQ8_0, 0, 0.10},
                                           Conversion{DType::kMXFP4, DType::kQ8_0, 0, 0.15},
                                           Conversion{DType::kQ4_K, DType::kQ4_1, 0.0007, 0.10},
                                           Conversion{DType::kQ4_K, DType::kQ8_0, 0.006, 0.10},
                                           Conversion{DType::kIQ4_NL, DType::kQ4_1, 0.09, 0.10},
                                           Conversion{DType::kMXFP4, DType::kQ4_1, 0.09, 0.15},
                                           Conversion{DType::kQ5_1, DType::kQ8_0, 0.006, 0.05},
                                           Conversion{DType::kQ5_K, DType::kQ8_0, 0.006, 0.05},
                                           Conversion{DType::kQ6_K, DType::kQ8_0, 0.006, 0.03},
                                           Conversion{DType::kQ2_K, DType::kQ4_1, 0.07, 0.5},
                                           Conversion{DType::kQ3_K, DType::kQ4_1, 0.09, 0.3}),
                         NameOfConversion);

TEST(Convert, IsExactForEveryMxfp4ScaleThatAHalfReaches) {
  for (int e = 0; e < 256; ++e) {
    BlockMXFP4 block = {};
    block.e = static_cast<uint8_t>(e);
    for (int i = 0; i < 16; ++i) block.qs[i] = static_cast<uint8_t>(i | (15 - i) << 4);
    std::vector<std::byte> bytes(sizeof(block));
    std::memcpy(bytes.data(), &block, sizeof(block));
    const std::vector<float> stored = Decode(DType::kMXFP4, bytes, 32);
    const std::vector<float> converted = ConvertAndDecode(DType::kMXFP4, bytes, DType::kQ8_0, 32);
    for (int i = 0; i < 32; ++i) {
      if (e >= 104 && e <= 146) {
        EXPECT_EQ(converted[i], stored[i]) << e;
      } else if (e < 104) {
        EXPECT_LE(std::abs(converted[i] - stored[i]), 0x1p-25f) << e;
      } else {
        EXPECT_EQ(converted[i] > 0, stored[i] > 0) << e;
        EXPECT_LE(std::abs(converted[i]), 127 * 32768.0f) << e;
        EXPECT_TRUE(stored[i] == 0 || std::abs(converted[i]) >= 32768.0f) << e;
      }
    }
  }
}

// Types without an encoder here: of random codes.
TEST(Convert, KeepsTheWeightsOfAllOtherTypes) {
  std::mt19937 random(8);
  for (const TileFormat& format : kTileFormats) {
    if (CanQuantize(format.dtype) || test_encoders::CanEncode(format.dtype)) continue;
    constexpr size_t kWeights = size_t{1} << 16;
    const std::vector<std::byte> bytes =
        testing::RandomWeights(format.dtype, kWeights, random, 0.02f);
    const std::vector<float> stored = Decode(format.dtype, bytes, kWeights);
    const ConversionTargets targets = ConversionTargetsOf(format.dtype);
    const double error =
        RelativeError(stored, ConvertAndDecode(format.dtype, bytes, targets.first, kWeights));
    EXPECT_LE(error, 0.006) << NameOf(format.dtype);
  }
}

TEST(Convert, KeepsQ4KFiniteWhereAScaleOverflows) {
  BlockQ4_K block = {};
  block.d = FloatToHalf(60000.0f);
  block.dmin = FloatToHalf(60000.0f);
  std::fill(std::begin(block.scales), std::end(block.scales), uint8_t{0xff});
  std::vector<std::byte> bytes(sizeof(block));
  std::memcpy(bytes.data(), &block, sizeof(block));
  for (const float value : ConvertAndDecode(DType::kQ4_K, bytes, DType::kQ4_1, 256)) {
    EXPECT_EQ(value, -65504.0f);
  }
}

TEST(Convert, CopiesWithinAType) {
  std::mt19937 random(3);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<std::byte> in(RowBytes(dtype, 512));
    for (std::byte& b : in) b = static_cast<std::byte>(random());
    std::vector<std::byte> out(in.size());
    Convert(dtype, in.data(), 512, dtype, out.data());
    EXPECT_EQ(in, out) << NameOf(dtype);
  }
}

TEST(Convert, GoesThroughFloatInChunksOfAnyLength) {
  const std::vector<float> x = NormalWeights(32 * 21);  // not a multiple of the chunk
  std::vector<std::byte> q8(RowBytes(DType::kQ8_0, x.size()));
  Quantize(DType::kQ8_0, x.data(), static_cast<int64_t>(x.size()), q8.data());
  const std::vector<float> stored = Decode(DType::kQ8_0, q8, x.size());
  EXPECT_EQ(ConvertAndDecode(DType::kQ8_0, q8, DType::kF32, x.size()), stored);
  // Any source, any target: hostile blocks (infinite scales) included, nothing is undefined.
  std::mt19937 random(4);
  for (int from = 0; from < kNumDTypes; ++from) {
    for (int to = 0; to < kNumDTypes; ++to) {
      if (!CanQuantize(static_cast<DType>(to))) continue;
      std::vector<std::byte> in(RowBytes(static_cast<DType>(from), 768));
      for (std::byte& b : in) b = static_cast<std::byte>(random());
      ConvertAndDecode(static_cast<DType>(from), in, static_cast<DType>(to), 768);
    }
  }
}

TEST(Convert, TargetsAreTypesWithAKernel) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const ConversionTargets targets = ConversionTargetsOf(dtype);
    const bool is_weight = dtype < DType::kI8 || dtype == DType::kF64;
    EXPECT_EQ(CanQuantize(targets.first), is_weight) << NameOf(dtype);
    EXPECT_EQ(CanQuantize(targets.second), is_weight) << NameOf(dtype);
    if (CanQuantize(dtype)) {
      EXPECT_EQ(targets.first, dtype);
    }
  }
  EXPECT_EQ(ConversionTargetsOf(DType::kQ4_K).first, DType::kQ4_1);
  EXPECT_EQ(ConversionTargetsOf(DType::kQ4_K).second, DType::kQ8_0);
  EXPECT_EQ(ConversionTargetsOf(DType::kQ6_K).first, DType::kQ8_0);
  EXPECT_EQ(ConversionTargetsOf(DType::kQ3_K).first, DType::kQ4_1);
}

}  // namespace
}  // namespace hearth::kernels
