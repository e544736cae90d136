#include "kernels/tile_pack.h"

#include <cstring>

#include "kernels/lane_pack.h"
#include "tensor/blocks.h"

namespace hearth::kernels {
namespace {

template <class Block>
void PackRow(const TileLayout& layout, const std::byte* from, int64_t lane, uint8_t* tile) {
  uint8_t* codes = tile + lane * 4;
  uint8_t* scales = tile + layout.scales_offset() + lane * 2;
  uint8_t* minimums = tile + layout.minimums_offset() + lane * 2;
  for (int64_t b = 0; b < layout.blocks; ++b) {
    Block block;
    std::memcpy(&block, from + b * static_cast<int64_t>(sizeof(block)), sizeof(block));
    LaneCodes<Block>::Pack(block, codes, TileLayout::kLineBytes);
    std::memcpy(scales, &block.d, sizeof(block.d));
    if constexpr (requires { block.m; }) std::memcpy(minimums, &block.m, sizeof(block.m));
    codes += layout.block_code_bytes();
    scales += TileLayout::kScalesBytes;
    minimums += TileLayout::kScalesBytes;
  }
}

template <class Block>
void UnpackRow(const TileLayout& layout, const uint8_t* tile, int64_t lane, std::byte* to) {
  const uint8_t* codes = tile + lane * 4;
  const uint8_t* scales = tile + layout.scales_offset() + lane * 2;
  const uint8_t* minimums = tile + layout.minimums_offset() + lane * 2;
  for (int64_t b = 0; b < layout.blocks; ++b) {
    Block block;
    LaneCodes<Block>::Unpack(codes, TileLayout::kLineBytes, block);
    std::memcpy(&block.d, scales, sizeof(block.d));
    if constexpr (requires { block.m; }) std::memcpy(&block.m, minimums, sizeof(block.m));
    std::memcpy(to + b * static_cast<int64_t>(sizeof(block)), &block, sizeof(block));
    codes += layout.block_code_bytes();
    scales += TileLayout::kScalesBytes;
    minimums += TileLayout::kScalesBytes;
  }
}

// Calls fn with an (empty) block of the tiled type.
template <class F>
void WithBlock(DType dtype, F&& fn) {
  if (dtype == DType::kQ4_0) fn(BlockQ4_0{});
  if (dtype == DType::kQ4_1) fn(BlockQ4_1{});
  if (dtype == DType::kQ8_0) fn(BlockQ8_0{});
}

}  // namespace

void PackTiles(DType dtype, const TileLayout& layout, const std::byte* rows, size_t row_bytes,
               int64_t num_rows, std::byte* tiles) {
  WithBlock(dtype, [&]<class Block>(Block) {
    for (int64_t first = 0; first < num_rows; first += TileLayout::kRows) {
      auto* tile = reinterpret_cast<uint8_t*>(tiles);
      const bool whole = num_rows - first >= TileLayout::kRows;
      if (!whole) std::memset(tile, 0, layout.tile_bytes());
      const int64_t lanes = whole ? TileLayout::kRows : num_rows - first;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const std::byte* row = rows + static_cast<size_t>(first + lane) * row_bytes;
        PackRow<Block>(layout, row, lane, tile);
      }
      tiles += layout.tile_bytes();
    }
  });
}

void UnpackTileRow(DType dtype, const TileLayout& layout, const std::byte* tiles, int64_t row,
                   std::byte* blocks) {
  WithBlock(dtype, [&]<class Block>(Block) {
    const auto tile = static_cast<size_t>(row / TileLayout::kRows);
    UnpackRow<Block>(layout, reinterpret_cast<const uint8_t*>(tiles + tile * layout.tile_bytes()),
                     row % TileLayout::kRows, blocks);
  });
}

}  // namespace hearth::kernels
