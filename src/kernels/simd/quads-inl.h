// Products of bytes in quads: the arithmetic under all kernels for 4- and 8-bit weights.
//
// Weights of 16 rows (tiles, tensor/weight_tiles.h) or of 16 blocks of a row lie in lines of 64
// bytes: 16 lanes of 32 bits, each a quad of 8-bit codes or two quads of 4-bit codes. A line is
// kVectorsPerLine vectors of the instruction set, whose lanes are those of FloatTag. An ISA file
// supplies, before it includes this file's users,
//   IntVec DotQuads(IntVec sums, Bytes u, Bytes s)   sums[i] += the four products of lane i,
//                                                    u unsigned, s signed; where kOffsetQ8_0
//                                                    is 0, two products must fit 16 bits
//   constexpr int32_t kOffsetQ8_0                    0 or 128, see PrepareQ8_0
//   Bytes PrepareQ8_0(Bytes)                         stored 8-bit codes, offset added
//   IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x)    w from PrepareQ8_0
//   class NibbleSums                                 DotQuads of up to kQuadsOfBlock quads in a
//                                                    row, u at most 15: as WideSums, or with sums
//                                                    that are narrower on the way
#pragma once

#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kLineLanes = 16;
inline constexpr int kQuadsOfBlock = 8;
inline constexpr int kVectorsPerLine = static_cast<int>(kLineLanes / kLanes);
inline constexpr int64_t kVectorBytes = 4 * kLanes;
static_assert(kVectorsPerLine * kLanes == kLineLanes, "vectors of 128, 256 or 512 bits");

// 4-bit codes stay unsigned, 0..15, in every instruction set; what they are too large by is taken
// off through the sum of the activations.
inline constexpr int32_t kOffsetQ4_0 = 8;

using IntVec = hn::Vec<IntTag>;
using ByteTag = hn::Repartition<uint8_t, FloatTag>;
using Bytes = hn::Vec<ByteTag>;
using PairTag = hn::Repartition<int16_t, FloatTag>;  // of products
using Pairs = hn::Vec<PairTag>;

HWY_INLINE Bytes LoadBytes(const void* p) {
  return hn::LoadU(ByteTag(), static_cast<const uint8_t*>(p));
}

// The quad of the low (high) nibbles of every lane.
HWY_INLINE Bytes LowNibbles(Bytes v) { return hn::And(v, hn::Set(ByteTag(), uint8_t{15})); }
HWY_INLINE Bytes HighNibbles(Bytes v) {
  const hn::Repartition<uint16_t, FloatTag> pairs;
  return LowNibbles(hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(pairs, v))));
}

// Products of quads added up one after the other to what Start got.
template <IntVec (*kDot)(IntVec, Bytes, Bytes)>
class WideSums {
 public:
  HWY_INLINE void Start(IntVec start) { sums_ = start; }
  HWY_INLINE void Add(Bytes u, Bytes s) { sums_ = kDot(sums_, u, s); }
  HWY_INLINE IntVec Total() const { return sums_; }

 private:
  IntVec sums_;
};

// The quad at p in all lanes.
HWY_INLINE Bytes BroadcastQuad(const void* p) {
  int32_t quad;
  __builtin_memcpy(&quad, p, sizeof(quad));
  return hn::BitCast(ByteTag(), hn::Set(IntTag(), quad));
}

// kLanes binary16 numbers at p as floats.
HWY_INLINE FloatVec LoadHalves(const void* p) {
  const auto bits = hn::LoadU(HalfBitsTag(), static_cast<const uint16_t*>(p));
  return hn::PromoteTo(kFloats, hn::BitCast(HalfTag(), bits));
}

}  // namespace hearth::kernels::HEARTH_ISA
