// Int8 activations and binary16 cache entries: the same bits on every ISA.
#include "kernels/test_util.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;
using testing::RandomFloats;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class NarrowTest : public testing::TableTest {
 protected:
  std::vector<BlockQ8> Quantize(const KernelTable& kernels, const std::vector<float>& x) {
    GuardedArray<float> in(x);
    const int64_t n = static_cast<int64_t>(x.size());
    GuardedArray<BlockQ8> out(n / 32);
    kernels.quantize_q8(in.data(), n, out.data(), 1);
    return out.ToVector();
  }

  void ExpectSameAsOracle(const std::vector<float>& x) {
    const std::vector<BlockQ8> expected = Quantize(oracle(), x);
    const std::vector<BlockQ8> actual = Quantize(table(), x);
    ASSERT_TRUE(testing::SameBits(actual.data(), expected.data(), actual.size() * sizeof(BlockQ8)));
  }

  std::mt19937 random_{43};
};

TEST_P(NarrowTest, QuantizeGivesTheBitsOfTheOracle) {
  for (DataKind kind : testing::kAllDataKinds) {
    for (int64_t blocks : {0, 1, 2, 3, 64}) {
      ExpectSameAsOracle(RandomFloats(random_, 32 * blocks, kind));
    }
  }
  // Around the smallest and largest magnitudes, where a reciprocal could overflow or vanish.
  for (float size : {0x1p-149f, 0x1p-126f, 0x1p-101f, 0x1.fffffep-101f, 0x1p-100f, 0x1p127f,
                     std::numeric_limits<float>::max()}) {
    std::vector<float> x = RandomFloats(random_, 32);
    for (float& v : x) v = std::clamp(v / 4, -1.0f, 1.0f) * size;
    x[5] = -size;
    ExpectSameAsOracle(x);
  }
}

// Values within a few roundings of a tie: another order of operations than the contract's gives
// other codes for some of them.
TEST_P(NarrowTest, QuantizeGivesTheBitsOfTheOracleNearTies) {
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::vector<float> x(32);
    x[0] = std::uniform_real_distribution<float>(0.5f, 2.0f)(random_);
    for (size_t i = 1; i < x.size(); ++i) {
      const float tie = static_cast<float>(random_() % 127) + 0.5f;
      x[i] = tie * x[0] / 127.0f;
      if (random_() % 2 == 0) x[i] = std::nextafter(x[i], random_() % 2 == 0 ? 0.0f : 1.0f);
    }
    ExpectSameAsOracle(x);
  }
}

TEST_P(NarrowTest, QuantizeRoundsTiesToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // scale 1
  for (int i = 1; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 16) + 0.5f;
  const BlockQ8 block = Quantize(table(), x)[0];
  EXPECT_EQ(block.scale, 1.0f);
  int32_t sum = 0;
  int32_t sum_of_first = 0;
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(block.codes[i], std::nearbyint(x[static_cast<size_t>(i)])) << i;
    sum += block.codes[i];
    if (i == 15) sum_of_first = sum;
  }
  EXPECT_EQ(block.minus_8_sum, -8 * sum);
  EXPECT_EQ(block.minus_8_sum_of_first, -8 * sum_of_first);
}

TEST_P(NarrowTest, QuantizeOfZerosAndNonFinite) {
  const BlockQ8 zeros = Quantize(table(), std::vector<float>(32, -0.0f))[0];
  EXPECT_EQ(zeros.scale, 0.0f);
  for (float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (size_t at : {0u, 13u, 31u}) {
      std::vector<float> x = RandomFloats(random_, 64);
      x[at] = bad;
      ExpectSameAsOracle(x);
      const std::vector<BlockQ8> blocks = Quantize(table(), x);
      EXPECT_TRUE(std::isnan(blocks[0].scale));
      EXPECT_EQ(blocks[0].minus_8_sum, 0);
      EXPECT_TRUE(std::isfinite(blocks[1].scale));
    }
  }
}

TEST_P(NarrowTest, HalfHasTheBitsOfTheOracle) {
  // All floats whose low 12 bits are one of these, by steps of the others: ties, near-ties,
  // denormals, overflow, infinities and NaN all occur.
  std::vector<float> x;
  for (uint32_t high = 0; high < (1u << 20); high += 7) {
    for (uint32_t low : {0x000u, 0x001u, 0x800u, 0xfffu}) {
      x.push_back(FloatFromBits(high << 12 | low));
    }
  }
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float v = HalfToFloat(static_cast<uint16_t>(h));
    x.push_back(v);
    const float next = HalfToFloat(static_cast<uint16_t>(h + 1));
    if (std::isfinite(v) && std::isfinite(next)) x.push_back((v + next) / 2);  // a tie
  }
  std::vector<uint16_t> actual(x.size());
  table().kv_encoders.to_half(x.data(), static_cast<int64_t>(x.size()), actual.data());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(HalfToFloat(actual[i]))) << std::hexfloat << x[i];
    } else {
      ASSERT_EQ(actual[i], FloatToHalf(x[i])) << std::hexfloat << x[i];
    }
  }
}

TEST_P(NarrowTest, HalfOfEverySize) {
  for (int64_t n = 0; n <= 50; ++n) {
    GuardedArray<float> x(RandomFloats(random_, n));
    GuardedArray<uint16_t> out(n);
    table().kv_encoders.to_half(x.data(), n, out.data());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[i], FloatToHalf(x[i]));
  }
}

HEARTH_FOR_ALL_TABLES(NarrowTest);

}  // namespace
}  // namespace hearth::kernels
