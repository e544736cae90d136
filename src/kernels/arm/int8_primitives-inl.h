// Int8 primitives on pairs of 128-bit vectors. The ISA file defines, before it includes this file,
//   int32x4_t DotBytes(sums, a, b)  adds four products of signed bytes to each 32-bit lane
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

using Codes = int8x16x2_t;      // 32 bytes
using IntSums = int32x4_t;      // 4 partial sums of int32
using FloatSums = float32x4_t;  // the same scaled, summed over blocks

// 32 registers: 16 sums.
inline constexpr int kRowsOfFloatTile = 4;
inline constexpr int kRowsOfInt8Tile = 4;

// Both operands are signed: codes are what they stand for.
inline constexpr int32_t kBlockOffsetQ4_0 = 0;

HWY_INLINE Codes LoadCodes(const uint8_t* p) {
  return {{vreinterpretq_s8_u8(vld1q_u8(p)), vreinterpretq_s8_u8(vld1q_u8(p + 16))}};
}

// 16 bytes to 32 codes of 0..15: low nibbles, then high ones.
HWY_INLINE Codes LoadNibbles(const uint8_t* p) {
  const uint8x16_t both = vld1q_u8(p);
  return {{vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))),
           vreinterpretq_s8_u8(vshrq_n_u8(both, 4))}};
}

HWY_INLINE Codes LoadCodesQ4_0(const uint8_t* p) {
  const Codes codes = LoadNibbles(p);
  const int8x16_t eight = vdupq_n_s8(8);
  return {{vsubq_s8(codes.val[0], eight), vsubq_s8(codes.val[1], eight)}};
}

HWY_INLINE Codes LoadCodesQ8_0(const uint8_t* p) { return LoadCodes(p); }

HWY_INLINE IntSums FirstLane(int32_t v) { return vsetq_lane_s32(v, vdupq_n_s32(0), 0); }

HWY_INLINE IntSums DotCodes(IntSums start, Codes w, Codes x) {
  return DotBytes(DotBytes(start, w.val[0], x.val[0]), w.val[1], x.val[1]);
}
HWY_INLINE IntSums DotNibbles(IntSums start, Codes w, Codes x) { return DotCodes(start, w, x); }
HWY_INLINE IntSums DotQ8_0(IntSums start, Codes w, Codes x) { return DotCodes(start, w, x); }

HWY_INLINE float HalfToFloat(const uint8_t* p) {
  __fp16 half;
  __builtin_memcpy(&half, p, sizeof(half));
  return static_cast<float>(half);
}

HWY_INLINE FloatSums Splat(float v) { return vdupq_n_f32(v); }
HWY_INLINE FloatSums FirstLane(float v) { return vsetq_lane_f32(v, vdupq_n_f32(0.0f), 0); }
HWY_INLINE FloatSums ToFloats(IntSums v) { return vcvtq_f32_s32(v); }
HWY_INLINE FloatSums Mul(FloatSums a, FloatSums b) { return vmulq_f32(a, b); }
HWY_INLINE FloatSums MulAdd(FloatSums a, FloatSums b, FloatSums sums) {
  return vfmaq_f32(sums, a, b);
}

HWY_INLINE float Total(FloatSums sums) { return vaddvq_f32(sums); }

}  // namespace hearth::kernels::HEARTH_ISA
