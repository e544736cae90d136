// Products of quads with the dot product instructions of Armv8.2, for the tables that have them.
#pragma once

#include <arm_neon.h>

#include "kernels/simd/quads-inl.h"

namespace hearth::kernels::HEARTH_ISA {

HWY_INLINE IntVec DotQuads(IntVec sums, Bytes u, Bytes s) {
  return IntVec{vdotq_s32(sums.raw, vreinterpretq_s8_u8(u.raw), vreinterpretq_s8_u8(s.raw))};
}
// Both operands are signed: 8-bit codes are what they stand for.
inline constexpr int32_t kOffsetQ8_0 = 0;
HWY_INLINE Bytes PrepareQ8_0(Bytes w) { return w; }
HWY_INLINE IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x) { return DotQuads(sums, w, x); }
using NibbleSums = WideSums<DotQuads>;

}  // namespace hearth::kernels::HEARTH_ISA
