#include "kernels/search/search_encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "kernels/dequantize.h"

namespace hearth::kernels {
namespace {

// How far quantized normal numbers may be from what they were, over their own length.
struct SearchedType {
  DType dtype;
  double bound;
};
constexpr SearchedType kSearched[] = {
    {DType::kQ4_0, 0.083},    {DType::kQ4_1, 0.071},    {DType::kQ5_0, 0.0415},
    {DType::kQ5_1, 0.0345},   {DType::kQ8_0, 0.0052},   {DType::kQ2_K, 0.265},
    {DType::kQ3_K, 0.149},    {DType::kQ4_K, 0.0705},   {DType::kQ5_K, 0.0350},
    {DType::kQ6_K, 0.0176},   {DType::kIQ4_NL, 0.0745}, {DType::kMXFP4, 0.1135},
    {DType::kIQ4_XS, 0.0745},
};

std::vector<std::byte> Encode(DType dtype, const std::vector<float>& x,
                              const std::vector<float>& importance = {}) {
  std::vector<std::byte> bytes(RowBytes(dtype, x.size()));
  EncodeBySearch(dtype, x.data(), static_cast<int64_t>(x.size()),
                 importance.empty() ? nullptr : importance.data(), bytes.data());
  return bytes;
}

std::vector<float> Decode(DType dtype, const std::vector<std::byte>& bytes, size_t n) {
  std::vector<float> out(n);
  Dequantize(dtype, bytes.data(), static_cast<int64_t>(n), out.data());
  return out;
}

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& x,
                             const std::vector<float>& importance = {}) {
  return Decode(dtype, Encode(dtype, x, importance), x.size());
}

std::vector<float> Normal(size_t n, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

// sqrt(sum w (x - y)^2 / sum w x^2).
double RelativeError(const std::vector<float>& x, const std::vector<float>& y,
                     const std::vector<float>& w = {}) {
  double error = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double weight = w.empty() ? 1 : w[i];
    error += weight * std::pow(double{x[i]} - double{y[i]}, 2);
    all += weight * std::pow(double{x[i]}, 2);
  }
  return std::sqrt(error / all);
}

TEST(SearchEncode, StaysWithinItsErrorAtEveryScale) {
  for (const auto& [dtype, bound] : kSearched) {
    ASSERT_TRUE(CanSearch(dtype));
    for (const float deviation : {1e-2f, 1.0f, 300.0f}) {
      const std::vector<float> x = Normal(size_t{256} * 64, deviation, 3);
      EXPECT_LE(RelativeError(x, RoundTrip(dtype, x)), bound) << NameOf(dtype) << ' ' << deviation;
    }
  }
}

TEST(SearchEncode, IsNoWorseThanRoundingAtOnce) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    const std::vector<float> x = Normal(size_t{256} * 32, 0.02f, 4);
    std::vector<std::byte> bytes(RowBytes(dtype, x.size()));
    Quantize(dtype, x.data(), static_cast<int64_t>(x.size()), bytes.data());
    const double fast = RelativeError(x, Decode(dtype, bytes, x.size()));
    EXPECT_LT(RelativeError(x, RoundTrip(dtype, x)), 0.96 * fast) << NameOf(dtype);
  }
}

TEST(SearchEncode, ImportanceMovesTheErrorToWhereItMattersLess) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const std::vector<float> x = Normal(size_t{256} * 32, 0.02f, 6);
  std::vector<float> importance(x.size());
  for (float& value : importance) value = 1e4f * std::exp(1.5f * normal(random));
  for (const auto& [dtype, bound] : kSearched) {
    const double without = RelativeError(x, RoundTrip(dtype, x), importance);
    const double with = RelativeError(x, RoundTrip(dtype, x, importance), importance);
    EXPECT_LT(with, 0.995 * without) << NameOf(dtype);
  }
}

TEST(SearchEncode, OnlyRatiosOfImportanceMatter) {
  const std::vector<float> x = Normal(512, 1, 7);
  for (const auto& [dtype, bound] : kSearched) {
    const std::vector<std::byte> plain = Encode(dtype, x);
    EXPECT_EQ(Encode(dtype, x, std::vector<float>(512, 1e-30f)), plain) << NameOf(dtype);
    EXPECT_EQ(Encode(dtype, x, std::vector<float>(512, 1e30f)), plain) << NameOf(dtype);
    EXPECT_EQ(Encode(dtype, x, std::vector<float>(512, 0.0f)), plain) << NameOf(dtype);
  }
}

TEST(SearchEncode, KeepsZerosAndConstants) {
  for (const auto& [dtype, bound] : kSearched) {
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(256, 0.0f)), std::vector<float>(256, 0.0f));
    EXPECT_EQ(RoundTrip(dtype, std::vector<float>(256, 1e-30f)), std::vector<float>(256, 0.0f));
    // A power of two is what every type can hold, or come close to.
    for (const float constant : {0.5f, -0.5f, 64.0f}) {
      const std::vector<float> x(256, constant);
      EXPECT_LE(RelativeError(x, RoundTrip(dtype, x)), 0.05) << NameOf(dtype) << ' ' << constant;
    }
  }
}

TEST(SearchEncode, AZeroBlockBesideOthersStaysZero) {
  for (const auto& [dtype, bound] : kSearched) {
    std::vector<float> x = Normal(768, 1, 8);
    std::fill(x.begin() + 256, x.begin() + 512, 0.0f);
    const std::vector<float> y = RoundTrip(dtype, x);
    EXPECT_EQ(std::vector<float>(y.begin() + 256, y.begin() + 512), std::vector<float>(256, 0.0f));
    EXPECT_NE(y[0], 0.0f);
  }
}

TEST(SearchEncode, OneLargeValueIsKept) {
  for (const auto& [dtype, bound] : kSearched) {
    for (const float outlier : {100.0f, -100.0f}) {
      std::vector<float> x = Normal(256, 0.01f, 9);
      x[77] = outlier;
      EXPECT_NEAR(RoundTrip(dtype, x)[77], outlier, 5) << NameOf(dtype);
    }
  }
}

TEST(SearchEncode, ResultsAreAlwaysFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMax = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [dtype, bound] : kSearched) {
    for (const float special : {kInf, -kInf, kMax, -kMax, nan, 1e30f, 1e-38f, 1e-45f}) {
      std::vector<float> x = Normal(256, 1, 10);
      for (size_t i = 0; i < 256; i += 37) x[i] = special;
      for (const float value : RoundTrip(dtype, x))
        EXPECT_TRUE(std::isfinite(value)) << NameOf(dtype);
      std::fill(x.begin(), x.end(), special);
      for (const float value : RoundTrip(dtype, x))
        EXPECT_TRUE(std::isfinite(value)) << NameOf(dtype);
    }
    for (int exponent = -40; exponent <= 40; exponent += 4) {
      const std::vector<float> x = Normal(256, std::ldexp(1.0f, exponent), 11);
      for (const float value : RoundTrip(dtype, x))
        EXPECT_TRUE(std::isfinite(value)) << NameOf(dtype);
    }
  }
}

TEST(SearchEncode, ValuesOfOneSignAreFitted) {
  for (const auto& [dtype, bound] : kSearched) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x = Normal(1024, 0.1f, 12);
      for (float& value : x) value = sign * (1 + value);
      // A symmetric type of three bits has four codes for each sign.
      EXPECT_LE(RelativeError(x, RoundTrip(dtype, x)), 0.11) << NameOf(dtype) << ' ' << sign;
    }
  }
}

TEST(SearchEncode, BlocksAreIndependentAndNeedNoAlignment) {
  const std::vector<float> x = Normal(1024, 1, 13);
  for (const auto& [dtype, bound] : kSearched) {
    const std::vector<std::byte> whole = Encode(dtype, x);
    std::vector<std::byte> halves(whole.size() + 1);
    EncodeBySearch(dtype, x.data(), 512, nullptr, halves.data() + 1);
    EncodeBySearch(dtype, x.data() + 512, 512, nullptr, halves.data() + 1 + whole.size() / 2);
    EXPECT_EQ(std::memcmp(whole.data(), halves.data() + 1, whole.size()), 0) << NameOf(dtype);
  }
}

TEST(SearchEncode, WhatATypeHoldsComesBackNearlyAsItWas) {
  const std::vector<float> x = Normal(2048, 0.05f, 14);
  for (const auto& [dtype, bound] : kSearched) {
    const std::vector<float> once = RoundTrip(dtype, x);
    EXPECT_LE(RelativeError(once, RoundTrip(dtype, once)), 0.45 * bound) << NameOf(dtype);
  }
}

TEST(SearchEncode, FloatTypesAreRounded) {
  const std::vector<float> x = {1.0f, 0.1f, -3.0f, 65504.0f};
  EXPECT_EQ(RoundTrip(DType::kF32, x), x);
  EXPECT_EQ(RoundTrip(DType::kF16, x)[3], 65504.0f);
  EXPECT_NEAR(RoundTrip(DType::kBF16, x)[1], 0.1f, 0.001f);
}

// A type that it denies becomes zeros: what it does not deny must come back.
TEST(SearchEncode, AllTypesThatItCanMakeAreTested) {
  const std::vector<float> x = Normal(512, 1, 15);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const bool is_searched = std::any_of(std::begin(kSearched), std::end(kSearched),
                                         [&](const SearchedType& s) { return s.dtype == dtype; });
    EXPECT_EQ(CanSearch(dtype),
              is_searched || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16)
        << NameOf(dtype);
    if (!CanSearch(dtype)) continue;
    EXPECT_LT(RelativeError(x, RoundTrip(dtype, x)), 0.3) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace hearth::kernels
