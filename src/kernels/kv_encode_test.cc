// Codes of keys and values: what they mean, and that every table makes the same ones.
#include "kernels/test_util.h"
#include "tensor/fp8.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;
using testing::RandomFloats;

constexpr int64_t kSizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 80, 96, 112, 128, 256};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct CodedKey {
  KeyRange range;
  std::vector<uint8_t> codes;
  double At(size_t i) const {
    return double{HalfToFloat(range.zero)} + double{HalfToFloat(range.scale)} * codes[i];
  }
};
struct CodedValue {
  uint16_t scale;
  std::vector<uint8_t> codes;
  double At(size_t i) const { return double{HalfToFloat(scale)} * Fp8ToFloat(codes[i]); }
};

class KvEncodeTest : public testing::TableTest {
 protected:
  static CodedKey Key(const KernelTable& table, const std::vector<float>& x, int32_t most_code) {
    GuardedArray<float> from(x);
    GuardedArray<uint8_t> codes(std::ssize(x));
    const auto n = static_cast<int64_t>(x.size());
    const KeyRange range = table.kv_encoders.key_range(from.data(), n, most_code);
    table.kv_encoders.key_codes(from.data(), n, range, codes.data());
    return {range, codes.ToVector()};
  }
  static double SquaredError(const CodedKey& key, const std::vector<float>& x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (key.At(i) - x[i]) * (key.At(i) - x[i]);
    return sum;
  }
  static CodedValue Value(const KernelTable& table, const std::vector<float>& x) {
    GuardedArray<float> from(x);
    GuardedArray<uint8_t> codes(std::ssize(x));
    const auto n = static_cast<int64_t>(x.size());
    const uint16_t scale = table.kv_encoders.to_fp8(from.data(), n, codes.data());
    return {scale, codes.ToVector()};
  }
  // Keys as models have them, and others: with an offset, tiny, of one number, with one far out.
  std::vector<std::vector<float>> SomeKeys(int64_t n) {
    std::vector<std::vector<float>> keys;
    for (const DataKind kind : testing::kAllDataKinds) {
      if (kind == DataKind::kLarge) continue;
      keys.push_back(RandomFloats(random_, n, kind));
      if (kind != DataKind::kMixed) continue;
      for (float& v : keys.back()) v *= 0.01f;  // binary16 holds them
    }
    for (const float offset : {100.0f, -3.0f, 60000.0f}) {
      keys.push_back(RandomFloats(random_, n));
      for (float& v : keys.back()) v += offset;
    }
    keys.push_back(RandomFloats(random_, n));
    keys.back()[static_cast<size_t>(n / 2)] = -4000;
    return keys;
  }

  std::mt19937 random_{7};
};

TEST_P(KvEncodeTest, KeysAreMetWithinHalfAScale) {
  for (const int64_t n : kSizes) {
    for (const std::vector<float>& x : SomeKeys(n)) {
      for (const int32_t most_code : {255, 31}) {
        const CodedKey key = Key(table(), x, most_code);
        const auto [least, largest] = std::minmax_element(x.begin(), x.end());
        const double scale = HalfToFloat(key.range.scale);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_LE(key.codes[i], most_code);
          // The difference and the product are rounded, in units of a code.
          const double rounding = (most_code + 1) * testing::kFloatEpsilon * 2;
          ASSERT_NEAR(key.At(i), x[i], scale * (0.5 + rounding) + 0x1p-100);
        }
        // A step is as fine as the components allow, but for what its binary16 numbers round.
        const double span = double{*largest} - *least;
        const double rounded = std::max(std::abs(double{*least}), std::abs(double{*largest}));
        ASSERT_LE(scale * most_code,
                  span * (1 + 0x1p-10) + rounded * 0x1p-9 + most_code * 0x1p-24 + 0x1p-23);
      }
    }
  }
}

// The sum of squared errors is at most that of the range which cuts nothing off, but for what the
// units in which the search counts are rounded.
TEST_P(KvEncodeTest, FewCodesMeetKeysAtLeastAsCloselyAsTheWholeRange) {
  for (const int64_t n : kSizes) {
    for (const std::vector<float>& x : SomeKeys(n)) {
      const auto [least, largest] = std::minmax_element(x.begin(), x.end());
      uint32_t bits = 0;
      for (const float v : x) bits = std::max(bits, BitsFromFloat(v) & 0x7fffffff);
      const KeyRange whole = RangeOfKey(*least, *largest, bits, 15);
      const CodedKey key = Key(table(), x, 15);
      GuardedArray<uint8_t> codes(n);
      table().kv_encoders.key_codes(x.data(), n, whole, codes.data());
      const double of_whole = SquaredError({whole, codes.ToVector()}, x);
      const double unit = (double{*largest} - *least) / 4095;
      ASSERT_LE(std::sqrt(SquaredError(key, x)),
                std::sqrt(of_whole) * (1 + 1e-6) + unit * std::sqrt(static_cast<double>(n)) + 1e-9)
          << n;
      for (const uint8_t code : key.codes) ASSERT_LE(code, 15);
    }
  }
}

// What it is for: a seventh less of squared error on 32 normal components.
TEST_P(KvEncodeTest, FewCodesMeetNormalKeysMoreClosely) {
  double nearest = 0, whole = 0;
  std::normal_distribution<float> normal;
  for (int key = 0; key < 500; ++key) {
    std::vector<float> x(32);
    for (float& v : x) v = normal(random_);
    nearest += SquaredError(Key(table(), x, 15), x);
    const auto [least, largest] = std::minmax_element(x.begin(), x.end());
    const KeyRange range = RangeOfKey(*least, *largest, 0, 15);
    std::vector<uint8_t> codes(32);
    table().kv_encoders.key_codes(x.data(), 32, range, codes.data());
    whole += SquaredError({range, codes}, x);
  }
  EXPECT_LT(nearest, 0.88 * whole);
}

TEST_P(KvEncodeTest, ValuesAreMetAsCloselyAsFp8Can) {
  for (const int64_t n : kSizes) {
    for (const DataKind kind : testing::kAllDataKinds) {
      if (kind == DataKind::kLarge) continue;
      const std::vector<float> x = RandomFloats(random_, n, kind);
      const CodedValue value = Value(table(), x);
      const double scale = HalfToFloat(value.scale);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NE(value.codes[i] & 0x7f, 0x7f);
        // Half a step of 2^-3, or of the least number.
        const double step = std::max(std::abs(double{x[i]}) * (1 + 0x1p-20) * 0x1p-4,
                                     scale * 0x1p-10 * (1 + 0x1p-20));
        ASSERT_NEAR(value.At(i), x[i], step + 0x1p-100);
      }
    }
  }
}

TEST_P(KvEncodeTest, EveryTableMakesTheSameBits) {
  for (const int64_t n : kSizes) {
    for (std::vector<float> x : SomeKeys(n)) {
      for (const float special : {0.0f, -0.0f, kInfinity, -kInfinity, 65504.0f, 65505.0f, -3e38f,
                                  std::numeric_limits<float>::quiet_NaN(), 1e-30f}) {
        for (const int32_t most_code : {255, 15}) {
          const CodedKey expected = Key(oracle(), x, most_code);
          const CodedKey actual = Key(table(), x, most_code);
          ASSERT_EQ(actual.range.scale, expected.range.scale);
          ASSERT_EQ(actual.range.zero, expected.range.zero);
          ASSERT_EQ(actual.codes, expected.codes);
        }
        ASSERT_EQ(Value(table(), x).scale, Value(oracle(), x).scale);
        ASSERT_EQ(Value(table(), x).codes, Value(oracle(), x).codes);
        x[random_() % x.size()] = special;
      }
    }
  }
}

TEST_P(KvEncodeTest, WhatHalvesDoNotHoldShows) {
  for (const float bad :
       {kInfinity, -kInfinity, 65505.0f, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {0u, 4u, 17u}) {
      std::vector<float> x = RandomFloats(random_, 18);
      x[at] = bad;
      const CodedKey key = Key(table(), x, 255);
      EXPECT_TRUE(std::isnan(HalfToFloat(key.range.scale)));
      EXPECT_EQ(key.codes, std::vector<uint8_t>(18, 0));
      if (bad == 65505.0f) continue;
      const CodedValue value = Value(table(), x);
      EXPECT_TRUE(std::isnan(HalfToFloat(value.scale)));
      EXPECT_EQ(value.codes, std::vector<uint8_t>(18, 0));
    }
  }
}

// Known answers, so that an oracle that errs is noticed.
TEST_P(KvEncodeTest, KnownCodes) {
  const CodedKey key = Key(table(), {-1.0f, 0.0f, 0.25f, 14.5f}, 31);
  EXPECT_EQ(HalfToFloat(key.range.zero), -1.0f);
  EXPECT_EQ(HalfToFloat(key.range.scale), 0.5f);
  EXPECT_EQ(key.codes, (std::vector<uint8_t>{0, 2, 2, 31})) << "2.5 is rounded to even";
  // Where codes can meet all components they do.
  const CodedKey exact = Key(table(), {-1.0f, 0.0f, 0.5f, 6.5f, 3.0f}, 15);
  EXPECT_EQ(HalfToFloat(exact.range.zero), -1.0f);
  EXPECT_EQ(HalfToFloat(exact.range.scale), 0.5f);
  EXPECT_EQ(exact.codes, (std::vector<uint8_t>{0, 2, 3, 15, 8}));
  const CodedValue value = Value(table(), {448.0f, -1.0f, 17.0f, 0x1p-9f, 0x1p-10f, -3 * 0x1p-10f});
  EXPECT_EQ(HalfToFloat(value.scale), 1.0f);
  EXPECT_EQ(value.codes, (std::vector<uint8_t>{0x7e, 0xb8, 0x58, 0x01, 0x00, 0x82}));
}

TEST(Fp8Test, EveryCodeIsItsNumbersCode) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(FloatToFp8(Fp8ToFloat(static_cast<uint8_t>(code))), code);
  }
  EXPECT_EQ(Fp8ToFloat(0x7e), 448.0f);
  EXPECT_EQ(Fp8ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(FloatToFp8(1e9f), 0x7e);
  // Halfway between neighbours to the even one, beside it to the nearer.
  for (uint8_t code = 0; code < 0x7e; ++code) {
    const float low = Fp8ToFloat(code), high = Fp8ToFloat(static_cast<uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(FloatToFp8(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(FloatToFp8(std::nextafter(middle, low)), code);
    EXPECT_EQ(FloatToFp8(std::nextafter(middle, high)), code + 1);
  }
}

HEARTH_FOR_ALL_TABLES(KvEncodeTest);

}  // namespace
}  // namespace hearth::kernels
