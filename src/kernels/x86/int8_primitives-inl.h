// Int8 primitives on 256-bit vectors, for all x86 tables. What differs between them is how bytes
// are multiplied: the ISA file defines, before it includes this file,
//   kOffsetQ8_0                               0, or 128 where unsigned bytes may be any
//   __m256i DotBytes(sums, unsigned, signed)  adds four products to each 32-bit lane
// Blocks of 32 bytes fit 256 bits exactly; 512 bits would need two blocks with two scales.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

using Codes = __m256i;     // 32 bytes
using IntSums = __m256i;   // 8 partial sums of int32
using FloatSums = __m256;  // the same scaled, summed over blocks

inline constexpr int32_t kBlockOffsetQ4_0 = 8;  // nibbles stay unsigned, as the dot product wants them

HWY_INLINE Codes LoadCodes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p));
}

// 16 bytes to 32 codes of 0..15: low nibbles, then high ones.
HWY_INLINE Codes LoadNibbles(const uint8_t* p) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
  const __m128i high = _mm_srli_epi16(low, 4);
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

HWY_INLINE Codes LoadCodesQ4_0(const uint8_t* p) { return LoadNibbles(p); }

HWY_INLINE Codes LoadCodesQ8_0(const uint8_t* p) {
  const Codes codes = LoadCodes(p);
  if constexpr (kOffsetQ8_0 == 0) return codes;
  return _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));  // adds 128
}

HWY_INLINE IntSums FirstLane(int32_t v) { return _mm256_zextsi128_si256(_mm_cvtsi32_si128(v)); }

HWY_INLINE IntSums DotNibbles(IntSums start, Codes w, Codes x) { return DotBytes(start, w, x); }

HWY_INLINE IntSums DotQ8_0(IntSums start, Codes w, Codes x) {
  if constexpr (kOffsetQ8_0 != 0) return DotBytes(start, w, x);
  // Signed times signed as |w| * (x with the sign of w).
  return DotBytes(start, _mm256_sign_epi8(w, w), _mm256_sign_epi8(x, w));
}

HWY_INLINE float HalfToFloat(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}

HWY_INLINE FloatSums Splat(float v) { return _mm256_set1_ps(v); }
HWY_INLINE FloatSums FirstLane(float v) { return _mm256_zextps128_ps256(_mm_set_ss(v)); }
HWY_INLINE FloatSums ToFloats(IntSums v) { return _mm256_cvtepi32_ps(v); }
HWY_INLINE FloatSums Mul(FloatSums a, FloatSums b) { return _mm256_mul_ps(a, b); }
HWY_INLINE FloatSums MulAdd(FloatSums a, FloatSums b, FloatSums sums) {
  return _mm256_fmadd_ps(a, b, sums);
}

HWY_INLINE float Total(FloatSums sums) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
  return _mm_cvtss_f32(sum);
}

}  // namespace hearth::kernels::HEARTH_ISA
