#include "kernels/tile_pack.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/four_rows.h"
#include "kernels/lane_pack.h"
#include "kernels/plane_pack.h"
#include "tensor/blocks.h"

namespace hearth::kernels {
namespace {

void Store(const Words& words, uint8_t* line) { std::memcpy(line, &words, sizeof(words)); }

// LaneCodes<Block>::Pack for the blocks of four rows.
template <class Block>
void PackFour(const std::byte* blocks, size_t row_bytes, uint8_t* codes) {
  const std::byte* from = blocks + offsetof(Block, qs);
  const FourRows rows = {{from, from + row_bytes, from + 2 * row_bytes, from + 3 * row_bytes}};
  constexpr size_t kLine = TileLayout::kLineBytes;
  Words words[4];
  if constexpr (sizeof(Block::qs) == 32) {
    for (size_t half = 0; half < 2; ++half) {
      rows.LoadFour(half * sizeof(Words), words);
      for (size_t j = 0; j < 4; ++j) Store(words[j], codes + (4 * half + j) * kLine);
    }
  } else {
    rows.LoadFour(0, words);
    constexpr uint32_t kLow = 0x0f0f0f0f;
    for (size_t line = 0; line < 2; ++line) {
      const Words first = words[2 * line], second = words[2 * line + 1];
      Store((first & kLow) | (second & kLow) << 4, codes + line * kLine);
      Store((first >> 4 & kLow) | (second & ~kLow), codes + (line + 2) * kLine);
    }
  }
}

template <class Block>
void CopyScales(const std::byte* block, int64_t lane, uint8_t* scales, uint8_t* minimums) {
  std::memcpy(scales + lane * 2, block + offsetof(Block, d), sizeof(Block::d));
  if constexpr (requires { Block::m; }) {
    std::memcpy(minimums + lane * 2, block + offsetof(Block, m), sizeof(Block::m));
  }
}

// Block by block, so that the lines of a tile are written while they are in the nearest cache.
template <class Block>
void PackTile(const TileLayout& layout, const std::byte* rows, size_t row_bytes, int64_t lanes,
              uint8_t* tile) {
  for (int64_t b = 0; b < layout.blocks; ++b, rows += sizeof(Block)) {
    uint8_t* codes = tile + layout.codes_offset(b);
    const auto row = [&](int64_t lane) { return rows + static_cast<size_t>(lane) * row_bytes; };
    for (int64_t lane = 0; lane < lanes; ++lane) {
      CopyScales<Block>(row(lane), lane, tile + layout.scales_offset(b),
                        tile + layout.minimums_offset(b));
    }
    int64_t lane = 0;
    for (; lane + 4 <= lanes; lane += 4) PackFour<Block>(row(lane), row_bytes, codes + lane * 4);
    for (; lane < lanes; ++lane) {
      Block block;
      std::memcpy(&block, row(lane), sizeof(block));
      LaneCodes<Block>::Pack(block, codes + lane * 4, TileLayout::kLineBytes);
    }
  }
  if (layout.blocks % 2 != 0) {
    const int64_t none = layout.blocks;
    std::memset(tile + layout.scales_offset(none), 0, TileLayout::kScalesBytes);
    if (layout.format.has_minimums) {
      std::memset(tile + layout.minimums_offset(none), 0, TileLayout::kScalesBytes);
    }
  }
}

template <class Block>
void UnpackRow(const TileLayout& layout, const uint8_t* tile, int64_t lane, std::byte* to) {
  for (int64_t b = 0; b < layout.blocks; ++b) {
    const auto half = [&](size_t offset, auto& to_half) {
      std::memcpy(&to_half, tile + offset + lane * 2, sizeof(to_half));
    };
    Block block;
    LaneCodes<Block>::Unpack(tile + layout.codes_offset(b) + lane * 4, TileLayout::kLineBytes,
                             block);
    half(layout.scales_offset(b), block.d);
    if constexpr (requires { block.m; }) half(layout.minimums_offset(b), block.m);
    std::memcpy(to + b * static_cast<int64_t>(sizeof(block)), &block, sizeof(block));
  }
}

// Blocks as the file has them (TileScales::kStored), one of each row after the other.
void PackStoredTile(const TileLayout& layout, const std::byte* rows, size_t row_bytes,
                    int64_t lanes, uint8_t* tile) {
  const auto bytes = static_cast<size_t>(layout.format.stored_bytes);
  uint8_t* const end = tile + layout.tile_bytes();
  for (int64_t b = 0; b < layout.blocks; b += layout.format.blocks_of_group()) {
    for (int64_t lane = 0; lane < TileLayout::kRows; ++lane, tile += bytes) {
      if (lane < lanes) {
        std::memcpy(tile, rows + static_cast<size_t>(lane) * row_bytes, bytes);
      } else {
        std::memset(tile, 0, bytes);
      }
    }
    rows += bytes;
  }
  std::memset(tile, 0, static_cast<size_t>(end - tile));
}

void UnpackStoredRow(const TileLayout& layout, const uint8_t* tile, int64_t lane, std::byte* to) {
  const auto bytes = static_cast<size_t>(layout.format.stored_bytes);
  for (int64_t b = 0; b < layout.blocks; b += layout.format.blocks_of_group(), to += bytes) {
    std::memcpy(to, tile + layout.group_offset(b) + static_cast<size_t>(lane) * bytes, bytes);
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
  auto* tile = reinterpret_cast<uint8_t*>(tiles);
  for (int64_t first = 0; first < num_rows; first += TileLayout::kRows) {
    const std::byte* from = rows + static_cast<size_t>(first) * row_bytes;
    const int64_t lanes = std::min(TileLayout::kRows, num_rows - first);
    if (layout.format.is_stored()) {
      PackStoredTile(layout, from, row_bytes, lanes, tile);
    } else if (!PackPlaneTile(dtype, layout, from, row_bytes, lanes, tile)) {
      if (lanes < TileLayout::kRows) std::memset(tile, 0, layout.tile_bytes());
      WithBlock(dtype,
                [&]<class Block>(Block) { PackTile<Block>(layout, from, row_bytes, lanes, tile); });
    }
    tile += layout.tile_bytes();
  }
}

void UnpackTileRow(DType dtype, const TileLayout& layout, const std::byte* tiles, int64_t row,
                   std::byte* blocks) {
  const size_t tile = static_cast<size_t>(row / TileLayout::kRows) * layout.tile_bytes();
  const auto* from = reinterpret_cast<const uint8_t*>(tiles + tile);
  if (layout.format.is_stored()) {
    return UnpackStoredRow(layout, from, row % TileLayout::kRows, blocks);
  }
  if (UnpackPlaneRow(dtype, layout, from, row % TileLayout::kRows, blocks)) return;
  WithBlock(dtype, [&]<class Block>(Block) {
    UnpackRow<Block>(layout, from, row % TileLayout::kRows, blocks);
  });
}

}  // namespace hearth::kernels
