#include "kernels/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

std::string ReadGolden(const std::string& name) {
  const std::string golden = ReadWholeFile(SourcePath("tests/goldens/" + name));
  EXPECT_FALSE(golden.empty()) << name;
  return golden;
}

struct GoldenType {
  DType dtype;
  int64_t num_weights;
  size_t offset_bytes;  // in quants.bin
  size_t float_offset;  // in quants.f32, in floats
};

// quants.json is a flat list of objects with one field per line; no parser is needed for that.
std::vector<GoldenType> ReadGoldenTypes() {
  const std::string text = ReadGolden("quants.json");
  std::vector<GoldenType> types;
  const std::regex object(R"re(\{[^{}]*"type": "(\w+)"[^{}]*\})re");
  for (std::sregex_iterator it(text.begin(), text.end(), object), end; it != end; ++it) {
    const std::string fields = it->str();
    const auto number = [&fields](const std::string& name) -> uint64_t {
      std::smatch match;
      const bool found = std::regex_search(fields, match, std::regex("\"" + name + "\": (\\d+)"));
      EXPECT_TRUE(found) << name;
      return found ? std::stoull(match[1]) : 0;
    };
    const std::optional<DType> dtype = DTypeFromName((*it)[1].str());
    EXPECT_TRUE(dtype.has_value()) << (*it)[1];
    if (!dtype) continue;
    EXPECT_EQ(InfoOf(*dtype).gguf_id, number("ggml_type"));
    EXPECT_EQ(InfoOf(*dtype).block_size, number("block_weights"));
    EXPECT_EQ(InfoOf(*dtype).block_bytes, number("block_bytes"));
    types.push_back({*dtype, static_cast<int64_t>(number("n_weights")), number("offset_bytes"),
                     number("float_offset")});
  }
  return types;
}

bool SameFloat(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || BitsFromFloat(a) == BitsFromFloat(b);
}

TEST(Dequantize, EqualsTheReferenceBitForBit) {
  const std::string blocks = ReadGolden("quants.bin");
  const std::string values = ReadGolden("quants.f32");
  const std::vector<GoldenType> types = ReadGoldenTypes();
  EXPECT_GE(types.size(), 25u);  // every type but F32, F64 and Q1_0
  for (const GoldenType& type : types) {
    const auto n = static_cast<size_t>(type.num_weights);
    ASSERT_LE(type.offset_bytes + RowBytes(type.dtype, n), blocks.size());
    ASSERT_LE((type.float_offset + n) * sizeof(float), values.size());
    // One byte further, so that nothing is aligned.
    std::vector<std::byte> in(1 + RowBytes(type.dtype, n));
    std::memcpy(in.data() + 1, blocks.data() + type.offset_bytes, in.size() - 1);
    std::vector<float> expected(n);
    std::memcpy(expected.data(), values.data() + type.float_offset * sizeof(float),
                n * sizeof(float));
    std::vector<float> out(n);
    Dequantize(type.dtype, in.data() + 1, type.num_weights, out.data());
    size_t different = 0;
    for (size_t i = 0; i < n; ++i) {
      if (SameFloat(out[i], expected[i])) continue;
      if (different++ < 3) {
        ADD_FAILURE() << NameOf(type.dtype) << " weight " << i << ": " << out[i] << " instead of "
                      << expected[i];
      }
    }
    EXPECT_EQ(different, 0u) << NameOf(type.dtype);
  }
}

TEST(Dequantize, ConvertsEveryHalf) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> out(halves.size());
  const auto* in = reinterpret_cast<const std::byte*>(halves.data());
  Dequantize(DType::kF16, in, 65536, out.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(BitsFromFloat(out[i]), BitsFromFloat(HalfToFloat(halves[i]))) << i;
  }
  Dequantize(DType::kBF16, in, 65536, out.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(BitsFromFloat(out[i]), static_cast<uint32_t>(i) << 16);
  }
}

TEST(Dequantize, CopiesFloatsAndRoundsDoubles) {
  const float floats[] = {0.0f, -0.0f, 1e-45f, -3.5f, INFINITY};
  float out[5];
  Dequantize(DType::kF32, reinterpret_cast<const std::byte*>(floats), 5, out);
  EXPECT_EQ(std::memcmp(floats, out, sizeof(out)), 0);
  const double doubles[] = {0.1, -1e-300, 2.0, -0.0, 1e10};
  Dequantize(DType::kF64, reinterpret_cast<const std::byte*>(doubles), 5, out);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(out[i], static_cast<float>(doubles[i]));
}

TEST(Dequantize, LeavesNothingUnsetForTypesThatAreNoWeights) {
  const std::byte in[16] = {};
  float out[2] = {1, 1};
  Dequantize(DType::kI64, in, 2, out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

TEST(Dequantize, DoesNothingForNoWeights) {
  for (int i = 0; i < kNumDTypes; ++i) {
    Dequantize(static_cast<DType>(i), nullptr, 0, nullptr);
  }
}

// Blocks small enough to check by hand, so that a wrong reference does not go unnoticed.
TEST(Dequantize, FollowsTheFormulasOfBlocksH) {
  float out[256];
  BlockQ4_0 q4 = {FloatToHalf(0.5f), {}};
  q4.qs[0] = 0xf0;  // weight 0 has code 0, weight 16 code 15
  Dequantize(DType::kQ4_0, reinterpret_cast<const std::byte*>(&q4), 32, out);
  EXPECT_EQ(out[0], -4.0f);
  EXPECT_EQ(out[16], 3.5f);

  BlockQ5_1 q5 = {FloatToHalf(2.0f), FloatToHalf(-1.0f), {}, {}};
  q5.qs[3] = 0x21;
  q5.qh[0] = 1 << 3;
  q5.qh[2] = 1 << 3;
  Dequantize(DType::kQ5_1, reinterpret_cast<const std::byte*>(&q5), 32, out);
  EXPECT_EQ(out[3], 2.0f * 17 - 1);
  EXPECT_EQ(out[19], 2.0f * 18 - 1);

  BlockMXFP4 fp4 = {128, {}};  // a scale of 2
  fp4.qs[15] = 0x97;           // weight 15: 6, weight 31: -0.5
  Dequantize(DType::kMXFP4, reinterpret_cast<const std::byte*>(&fp4), 32, out);
  EXPECT_EQ(out[15], 12.0f);
  EXPECT_EQ(out[31], -1.0f);

  BlockQ1_0 q1 = {FloatToHalf(-0.75f), {}};
  q1.qs[2] = 1 << 5;  // weight 21
  Dequantize(DType::kQ1_0, reinterpret_cast<const std::byte*>(&q1), 128, out);
  EXPECT_EQ(out[20], 0.75f);
  EXPECT_EQ(out[21], -0.75f);
  EXPECT_EQ(out[127], 0.75f);

  BlockQ6_K q6 = {};
  q6.d = FloatToHalf(1.0f);
  q6.scales[15] = -3;  // of the last 16 weights
  q6.ql[127] = 0xa0;   // weight 255, code 10 ...
  q6.qh[63] = 3 << 6;  // ... plus 48
  Dequantize(DType::kQ6_K, reinterpret_cast<const std::byte*>(&q6), 256, out);
  EXPECT_EQ(out[255], -3.0f * (58 - 32));
  EXPECT_EQ(out[254], -3.0f * -32);
  EXPECT_EQ(out[0], 0.0f);
}

}  // namespace
}  // namespace hearth::kernels
