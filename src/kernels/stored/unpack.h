// Blocks of types whose codes are indices of grids or digits (TileScales::kStored in
// tensor/weight_tiles.h), unpacked to codes of 8 bits and scales: while they are multiplied, and to
// floats. Exact: weight i of a block is its scale times its code less 64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight_tiles.h"

namespace hearth::kernels {

// A block of one row, in order.
struct UnpackedBlock {
  static constexpr int kMaxColumns = 256;
  static constexpr int kMaxScales = 16;

  alignas(64) uint8_t codes[kMaxColumns];
  float scales[kMaxScales];  // of 32 columns each, or of 16 (TileFormat::scales_of_block)
};

// A group of a tile, the blocks of 16 rows. Codes lie as those of 8 bits do: line q of a block of
// 32 columns has quad q, whose lanes are rows.
struct UnpackedGroup {
  static constexpr int kMaxBlocks = UnpackedBlock::kMaxColumns / 32;
  static constexpr int kBlockBytes = 8 * 64;
  static constexpr int kRows = 16;

  alignas(64) uint8_t quads[kMaxBlocks * kBlockBytes];
  alignas(64) float scales[UnpackedBlock::kMaxScales * kRows];  // of the rows, scale after scale
};

// One block, or one group, which need no alignment. dtype is a stored type. Thread-safe; never
// fails: every bit pattern stands for some weights.
void UnpackBlock(DType dtype, const std::byte* block, UnpackedBlock& out) noexcept;
void UnpackGroup(DType dtype, const std::byte* group, UnpackedGroup& out) noexcept;

}  // namespace hearth::kernels
