#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

namespace hearth {
namespace {

TEST(DType, IsFoundByItsNumberAndName) {
  std::set<uint32_t> numbers;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const DTypeInfo& info = InfoOf(dtype);
    EXPECT_EQ(info.dtype, dtype);
    EXPECT_TRUE(numbers.insert(info.gguf_id).second) << info.name;
    EXPECT_EQ(DTypeFromGguf(info.gguf_id), dtype);
    EXPECT_EQ(DTypeFromName(info.name), dtype);
    std::string lower = info.name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(DTypeFromName(lower), dtype);
  }
}

TEST(DType, IsNothingForOtherNumbersAndNames) {
  for (const uint32_t number : {4u, 5u, 9u, 15u, 31u, 33u, 36u, 38u, 42u, 1000u, UINT32_MAX}) {
    EXPECT_EQ(DTypeFromGguf(number), std::nullopt) << number;
  }
  for (const char* name : {"", "F", "F322", "Q4", "Q4_", "Q4_00", "Q8_1", " F32"}) {
    EXPECT_EQ(DTypeFromName(name), std::nullopt) << name;
  }
}

TEST(DType, KnowsTheBitsPerWeightOfEveryFormat) {
  const auto bits = [](DType dtype) {
    return 8.0 * InfoOf(dtype).block_bytes / InfoOf(dtype).block_size;
  };
  EXPECT_EQ(bits(DType::kF32), 32);
  EXPECT_EQ(bits(DType::kF16), 16);
  EXPECT_EQ(bits(DType::kBF16), 16);
  EXPECT_EQ(bits(DType::kQ4_0), 4.5);
  EXPECT_EQ(bits(DType::kQ4_1), 5);
  EXPECT_EQ(bits(DType::kQ5_0), 5.5);
  EXPECT_EQ(bits(DType::kQ5_1), 6);
  EXPECT_EQ(bits(DType::kQ8_0), 8.5);
  EXPECT_EQ(bits(DType::kQ2_K), 2.625);
  EXPECT_EQ(bits(DType::kQ3_K), 3.4375);
  EXPECT_EQ(bits(DType::kQ4_K), 4.5);
  EXPECT_EQ(bits(DType::kQ5_K), 5.5);
  EXPECT_EQ(bits(DType::kQ6_K), 6.5625);
  EXPECT_EQ(bits(DType::kIQ4_NL), 4.5);
  EXPECT_EQ(bits(DType::kMXFP4), 4.25);
  EXPECT_EQ(bits(DType::kNVFP4), 4.5);
  EXPECT_EQ(bits(DType::kIQ4_XS), 4.25);
  EXPECT_EQ(bits(DType::kIQ3_XXS), 3.0625);
  EXPECT_EQ(bits(DType::kIQ3_S), 3.4375);
  EXPECT_EQ(bits(DType::kIQ2_XXS), 2.0625);
  EXPECT_EQ(bits(DType::kIQ2_XS), 2.3125);
  EXPECT_EQ(bits(DType::kIQ2_S), 2.5625);
  EXPECT_EQ(bits(DType::kIQ1_S), 1.5625);
  EXPECT_EQ(bits(DType::kIQ1_M), 1.75);
  EXPECT_EQ(bits(DType::kTQ1_0), 1.6875);
  EXPECT_EQ(bits(DType::kTQ2_0), 2.0625);
  EXPECT_EQ(bits(DType::kQ1_0), 1.125);
  EXPECT_EQ(bits(DType::kI8), 8);
  EXPECT_EQ(bits(DType::kI16), 16);
  EXPECT_EQ(bits(DType::kI32), 32);
  EXPECT_EQ(bits(DType::kI64), 64);
  EXPECT_EQ(bits(DType::kF64), 64);
}

TEST(DType, SizesRows) {
  EXPECT_EQ(RowBytes(DType::kF32, 3), 12u);
  EXPECT_EQ(RowBytes(DType::kQ4_0, 4096), 2304u);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 512), 420u);
  EXPECT_EQ(RowBytes(DType::kQ4_0, 0), 0u);
  EXPECT_EQ(RowBytes(DType::kQ8_0, size_t{1} << 40), (size_t{1} << 35) * 34);
}

}  // namespace
}  // namespace hearth
