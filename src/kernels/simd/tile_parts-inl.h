// Where a block's parts are in a weight tile (tensor/weight_tiles.h). Only constants of that header
// are used here: its inline functions belong to no instruction set.
#pragma once

#include "kernels/simd/quads-inl.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels::HEARTH_ISA {

// Type is a weight type with its kDType.
template <class Type>
struct TileParts {
  static constexpr TileFormat kFormat = TileFormatOf(Type::kDType);
  static constexpr int64_t kScalesBytes = kFormat.scales_bytes();  // of a block
  static constexpr int64_t kScalesBegin = kFormat.scales_begin();
  static constexpr int64_t kMinimumsBegin = kFormat.minimums_begin();
  static constexpr int64_t kCodesBegin = kFormat.head_bytes();
  static constexpr int64_t kBlockBytes = kFormat.code_bits * kLineBytes;
  static constexpr int64_t kGroupBlocks = kFormat.blocks_of_group();
  static constexpr int64_t kGroupBytes = kCodesBegin + kGroupBlocks * kBlockBytes;

  // A tile of so many blocks. A last group that is not full has its head and the codes that exist.
  static HWY_INLINE int64_t TileBytes(int64_t blocks) {
    const int64_t rest = blocks % kGroupBlocks;
    return blocks / kGroupBlocks * kGroupBytes + (rest > 0 ? kCodesBegin + rest * kBlockBytes : 0);
  }

  const uint8_t* group;  // the group that holds the block
  int64_t which;         // its number in the group

  static HWY_INLINE TileParts Of(const uint8_t* tile, int64_t block) {
    return {tile + block / kGroupBlocks * kGroupBytes, block % kGroupBlocks};
  }
  HWY_INLINE const uint8_t* codes() const { return group + kCodesBegin + which * kBlockBytes; }
  HWY_INLINE const uint8_t* scales() const { return group + kScalesBegin + which * kScalesBytes; }
  HWY_INLINE const uint8_t* minimums() const {
    return group + kMinimumsBegin + which * kScalesBytes;
  }
};

}  // namespace hearth::kernels::HEARTH_ISA
