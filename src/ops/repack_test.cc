#include "ops/repack.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/view.h"
#include "tensor/weight_tiles.h"

namespace hearth {
namespace {

TEST(RepackTest, TypesWithAKernelStayAsTheyAre) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(ResidentType(dtype, {}, 256), dtype);
    EXPECT_EQ(ConvertedType(dtype, {}, 256), dtype);
  }
  for (const TileFormat& format : kTileFormats) {
    EXPECT_EQ(ResidentType(format.dtype, {}, 256), format.dtype);
  }
}

TEST(RepackTest, OthersBecomeWhatFormatsSays) {
  for (const DType dtype : {DType::kQ2_K, DType::kQ3_K}) {
    EXPECT_EQ(ConvertedType(dtype, {}, 256), DType::kQ4_1);
    if (!TileLayout::IsTiled(dtype)) {
      EXPECT_EQ(ResidentType(dtype, {}, 256), DType::kQ4_1);
    }
  }
  for (const DType dtype : {DType::kQ5_0, DType::kQ5_1, DType::kQ5_K, DType::kQ6_K}) {
    EXPECT_EQ(ConvertedType(dtype, {}, 256), DType::kQ8_0);
    if (!TileLayout::IsTiled(dtype)) {
      EXPECT_EQ(ResidentType(dtype, {}, 256), DType::kQ8_0);
    }
  }
  for (const DType dtype : {DType::kIQ4_XS, DType::kNVFP4, DType::kIQ3_S, DType::kIQ2_XXS,
                            DType::kIQ1_M, DType::kTQ1_0, DType::kQ1_0}) {
    EXPECT_EQ(ConvertedType(dtype, {}, 256), DType::kQ8_0);
    EXPECT_EQ(ResidentType(dtype, {}, 256), dtype);
  }
  EXPECT_THROW(ResidentType(DType::kI32, {}, 256), Error);
  EXPECT_THROW(ResidentType(DType::kF64, {}, 256), Error);
}

// Random but valid blocks: only the scales must be sane numbers.
template <typename Block>
std::vector<std::byte> RandomBlocks(size_t count, void (*set_scales)(Block&)) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(count * sizeof(Block));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  for (size_t i = 0; i < count; ++i) {
    set_scales(*reinterpret_cast<Block*>(bytes.data() + i * sizeof(Block)));
  }
  return bytes;
}

TEST(RepackTest, TheErrorDecidesWhereFormatsLeavesAChoice) {
  const auto q4_k = RandomBlocks<BlockQ4_K>(16, [](BlockQ4_K& b) {
    b.d = FloatToHalf(0.01f);
    b.dmin = FloatToHalf(0.02f);
  });
  EXPECT_EQ(ConvertedType(DType::kQ4_K, q4_k, 256), DType::kQ4_1) << "nearly exact";
  const auto iq4 = RandomBlocks<BlockIQ4_NL>(64, [](BlockIQ4_NL& b) { b.d = FloatToHalf(0.01f); });
  EXPECT_EQ(ConvertedType(DType::kIQ4_NL, iq4, 256), DType::kQ8_0) << "its steps are not even";
  const auto mx = RandomBlocks<BlockMXFP4>(64, [](BlockMXFP4& b) { b.e = 124; });
  EXPECT_EQ(ConvertedType(DType::kMXFP4, mx, 256), DType::kQ8_0);
}

TEST(RepackTest, ConvertedWeightsMeanTheSame) {
  const auto stored = RandomBlocks<BlockQ5_0>(32, [](BlockQ5_0& b) { b.d = FloatToHalf(0.03f); });
  std::vector<std::byte> repacked(32 * sizeof(BlockQ8_0));
  RepackRows(DType::kQ5_0, stored, 4, 256, DType::kQ8_0, repacked.data());
  std::vector<float> expected(1024), found(1024);
  ToFloat(DType::kQ5_0, stored, expected);
  ToFloat(DType::kQ8_0, repacked, found);
  EXPECT_EQ(found, expected) << "five bits fit into eight";
}

}  // namespace
}  // namespace hearth
