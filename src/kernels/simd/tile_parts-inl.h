// Where a block's parts are in a weight tile: TileLayout (tensor/weight_tiles.h), whose inline
// functions belong to no instruction set.
#pragma once

#include "kernels/simd/quads-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Codes is a weight type: its kLines, the lines of 64 bytes that a block's codes take, and whether
// it kHasMinimum.
template <class Codes>
struct TileParts {
  static constexpr int64_t kScalesBytes = 32;  // of a block: 16 binary16
  static constexpr int64_t kBlockBytes = Codes::kLines * kLineBytes;
  // In a pair: behind all scales and minimums.
  static constexpr int64_t kCodesBegin = (Codes::kHasMinimum ? 4 : 2) * kScalesBytes;
  static constexpr int64_t kPairBytes = kCodesBegin + 2 * kBlockBytes;

  // A tile of so many blocks: of an odd one the last has no codes for its neighbour.
  static HWY_INLINE int64_t TileBytes(int64_t blocks) {
    return (blocks >> 1) * kPairBytes + (blocks & 1) * (kCodesBegin + kBlockBytes);
  }

  const uint8_t* pair;  // the pair that holds the block
  int64_t which;        // 0 or 1

  static HWY_INLINE TileParts Of(const uint8_t* tile, int64_t block) {
    return {tile + (block >> 1) * kPairBytes, block & 1};
  }
  HWY_INLINE const uint8_t* codes() const { return pair + kCodesBegin + which * kBlockBytes; }
  HWY_INLINE const uint8_t* scales() const { return pair + which * kScalesBytes; }
  HWY_INLINE const uint8_t* minimums() const { return pair + (2 + which) * kScalesBytes; }
};

}  // namespace hearth::kernels::HEARTH_ISA
