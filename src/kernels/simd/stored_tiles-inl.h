// Tiles of stored blocks (TileScales::kStored), which kernels/stored/unpack.h unpacks a group at a
// time: into 5 KB on the stack, from where they go on as any chunk of tiles.
#pragma once

#include "kernels/simd/tile_types-inl.h"
#include "kernels/stored/unpack.h"

namespace hearth::kernels::HEARTH_ISA {

// A block of 16 rows of stored blocks, unpacked.
template <class Codes>
struct StoredParts {
  const uint8_t* quads;
  const float* scales;

  HWY_INLINE Bytes Quad(int q, int v) const {
    return LoadBytes(quads + q * kLineBytes + v * kVectorBytes);
  }
  HWY_INLINE FloatVec Scales(int part, int v) const {
    return hn::LoadU(kFloats, scales + part * kLineLanes + v * kLanes);
  }
};

// Calls fn(b, parts) for the blocks number first + b of a tile, b = 0 .. count - 1; both are
// multiples of a group's blocks.
template <class Codes, class F>
HWY_INLINE void ForStoredBlocks(const uint8_t* tile, int64_t first, int64_t count, const F& fn) {
  constexpr TileFormat kFormat = kFormatOf<Codes>;
  constexpr int64_t kBlocks = kFormat.stored_columns / 32;
  constexpr int64_t kGroupBytes = kLineLanes * kFormat.stored_bytes;
  const uint8_t* group = tile + first / kBlocks * kGroupBytes;
  UnpackedGroup unpacked;
  for (int64_t b = 0; b < count; group += kGroupBytes) {
    const uintptr_t next = reinterpret_cast<uintptr_t>(group) + kGroupBytes;
    for (int64_t at = 0; at < kGroupBytes; at += kLineBytes) {
      FetchAhead(reinterpret_cast<const void*>(next + static_cast<uintptr_t>(at)));
    }
    UnpackGroup(Codes::kDType, reinterpret_cast<const std::byte*>(group), unpacked);
    for (int64_t i = 0; i < kBlocks; ++i, ++b) {
      fn(b, StoredParts<Codes>{unpacked.quads + i * kQuadsOfBlock * kLineBytes,
                               unpacked.scales + i * kPartsOf<Codes> * kLineLanes});
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
