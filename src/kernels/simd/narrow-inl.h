// From float to fewer bits: int8 activations and binary16 cache entries.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Largest |x| of 32 floats. Compared as integers, which orders magnitudes alike and puts
// infinity and NaN on top.
HWY_INLINE float MaxMagnitude(const float* x) {
  const IntTag d;
  const auto magnitude_bits = hn::Set(d, 0x7fffffff);
  auto max = hn::Zero(d);
  for (int64_t i = 0; i < 32; i += kLanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(kFloats, x + i));
    max = hn::Max(max, hn::And(bits, magnitude_bits));
  }
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(d, max));
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

HWY_INLINE void QuantizeBlock(const float* x, BlockQ8* out) {
  const float max = MaxMagnitude(x);
  const bool finite = max <= 3.40282346638528859812e+38f;  // FLT_MAX; false for NaN
  const bool zero = max < kMinQ8Magnitude;
  const float inverse = finite && !zero ? 127.0f / max : 0.0f;
  out->scale = zero ? 0.0f : finite ? max / 127.0f : __builtin_nanf("");

  const IntTag d;
  const hn::Rebind<int8_t, FloatTag> d8;
  auto sum_of_first = hn::Zero(d);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < 32; i += kLanes) {
    if (i == 16) sum_of_first = sum;
    const FloatVec v = finite ? hn::LoadU(kFloats, x + i) : hn::Zero(kFloats);
    const auto codes = hn::NearestInt(hn::Mul(v, hn::Set(kFloats, inverse)));
    sum = hn::Add(sum, codes);
    hn::StoreU(hn::DemoteTo(d8, codes), d8, out->codes + i);
  }
  out->minus_8_sum = -8 * hn::GetLane(hn::SumOfLanes(d, sum));
  out->minus_8_sum_of_first = -8 * hn::GetLane(hn::SumOfLanes(d, sum_of_first));
  out->sum = out->scale * (-0.125f * static_cast<float>(out->minus_8_sum));
}

inline void QuantizeQ8(const float* x, int64_t n, BlockQ8* out, int64_t stride) noexcept {
  for (int64_t i = 0; i < n; i += 32) QuantizeBlock(x + i, out + i / 32 * stride);
}

inline void FloatToHalf(const float* x, int64_t n, uint16_t* out) noexcept {
  const FloatTag d;
  const HalfTag dh;
  const HalfBitsTag bits;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto half = hn::DemoteTo(dh, hn::LoadU(d, x + i));
    hn::StoreU(hn::BitCast(bits, half), bits, out + i);
  }
  if (i == n) return;
  const auto half = hn::DemoteTo(dh, LoadFirst(d, x + i, n - i));
  StoreFirst(hn::BitCast(bits, half), bits, out + i, n - i);
}

}  // namespace hearth::kernels::HEARTH_ISA
