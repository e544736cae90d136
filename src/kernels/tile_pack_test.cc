#include "kernels/tile_pack.h"

#include "kernels/test_util.h"
#include "tensor/blocks.h"

namespace hearth::kernels {
namespace {

using testing::DataKind;
using testing::GuardedArray;

TEST(TilePackTest, RowsComeBackExactly) {
  for (DType dtype : testing::TiledTypes()) {
    for (const int64_t rows : {1, 15, 16, 17, 40}) {
      const int64_t blocks = testing::WholeBlocks(dtype, 1 + rows % 5);
      const TileLayout layout(dtype, blocks * 32);
      std::mt19937 random(static_cast<uint32_t>(rows));
      std::vector<std::byte> matrix;
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<std::byte> row =
            testing::RandomBlocks(dtype, blocks * 32, random, DataKind::kNormal);
        matrix.insert(matrix.end(), row.begin(), row.end());
      }
      const size_t row_bytes = matrix.size() / static_cast<size_t>(rows);
      GuardedArray<std::byte> tiles(static_cast<int64_t>(layout.matrix_bytes(rows)));
      PackTiles(dtype, layout, matrix.data(), row_bytes, rows, tiles.data());
      std::vector<std::byte> row(row_bytes);
      for (int64_t r = 0; r < rows; ++r) {
        UnpackTileRow(dtype, layout, tiles.data(), r, row.data());
        EXPECT_TRUE(testing::SameBits(
            row.data(), matrix.data() + static_cast<size_t>(r) * row_bytes, row_bytes))
            << NameOf(dtype) << " row " << r << " of " << rows;
      }
    }
  }
}

// The bytes of one row of one block, by hand, in the third lane.
TEST(TilePackTest, PutsCodesScalesAndMinimumsWhereTheLayoutSays) {
  BlockQ4_1 block{};
  block.d = 0x1234;
  block.m = 0x5678;
  for (int i = 0; i < 16; ++i) block.qs[i] = static_cast<uint8_t>(i | (15 - i) << 4);
  BlockQ4_1 rows[3] = {};
  rows[2] = block;
  const TileLayout layout(DType::kQ4_1, 32);
  ASSERT_EQ(layout.tile_bytes(), 2u * 32 + 2 * 32 + 4 * 64);
  std::vector<uint8_t> tile(layout.tile_bytes(), 0xee);
  PackTiles(DType::kQ4_1, layout, reinterpret_cast<const std::byte*>(rows), sizeof(block), 3,
            reinterpret_cast<std::byte*>(tile.data()));
  for (int code = 0; code < 32; ++code) {
    const int value = code < 16 ? code : 31 - code;
    const uint8_t byte = tile[static_cast<size_t>(128 + code / 8 * 64 + 2 * 4 + code % 4)];
    EXPECT_EQ(code % 8 < 4 ? byte & 15 : byte >> 4, value) << code;
  }
  EXPECT_EQ(tile[4] | tile[5] << 8, 0x1234);
  EXPECT_EQ(tile[64 + 4] | tile[64 + 5] << 8, 0x5678);
  EXPECT_EQ(tile[128], 0) << "another lane";
  for (size_t i = 32; i < 64; ++i) {
    EXPECT_EQ(tile[i] | tile[64 + i], 0) << "of a block that does not exist";
  }
}

// Two blocks share the lines of their scales; the third begins after the codes of both.
TEST(TilePackTest, PutsBlocksTwoAndTwo) {
  const TileLayout layout(DType::kQ4_0, 3 * 32);
  EXPECT_EQ(layout.scales_offset(0), 0u);
  EXPECT_EQ(layout.scales_offset(1), 32u);
  EXPECT_EQ(layout.codes_offset(0), 64u);
  EXPECT_EQ(layout.codes_offset(1), 64u + 256);
  EXPECT_EQ(layout.scales_offset(2), 64u + 2 * 256);
  EXPECT_EQ(layout.tile_bytes(), 64u + 2 * 256 + 64 + 256);
  EXPECT_EQ(TileLayout(DType::kQ8_0, 2 * 32).tile_bytes(), 64u + 2 * 512);
}

// Memory that a matrix takes is that of its file, but for the bytes that 6-bit scales take.
TEST(TilePackTest, TilesTakeLittleMoreThanBlocks) {
  for (DType dtype : testing::TiledTypes()) {
    const TileLayout layout(dtype, 2048);
    EXPECT_EQ(layout.tile_bytes() % 64, 0u) << NameOf(dtype);
    EXPECT_GE(layout.tile_bytes(), 16 * RowBytes(dtype, 2048)) << NameOf(dtype);
    EXPECT_LE(static_cast<double>(layout.tile_bytes()),
              1.03 * 16 * static_cast<double>(RowBytes(dtype, 2048)))
        << NameOf(dtype);
  }
}

}  // namespace
}  // namespace hearth::kernels
