// Conversions between float and the two 16-bit formats, in portable integer arithmetic.
// Rounding is to nearest, ties to even; NaN stays NaN. Kernels have vector versions of their own.
#pragma once

#include <cstdint>
#include <cstring>

namespace hearth {

inline float FloatFromBits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

inline uint32_t BitsFromFloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  return bits;
}

// IEEE 754 binary16 to float, exact.
inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  uint32_t mantissa = h & 0x3ff;
  if (exponent == 0x1f) return FloatFromBits(sign | 0x7f800000 | (mantissa << 13));
  if (exponent != 0) return FloatFromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return FloatFromBits(sign);
  uint32_t e = 113;  // subnormal: normalize
  while ((mantissa & 0x400) == 0) {
    mantissa <<= 1;
    --e;
  }
  return FloatFromBits(sign | (e << 23) | ((mantissa & 0x3ff) << 13));
}

// Float to binary16. Magnitudes over 65504 (after rounding) become infinity.
inline uint16_t FloatToHalf(float f) {
  const uint32_t bits = BitsFromFloat(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x33000001) return sign;  // at most 2^-25: rounds to zero
  uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const int shift = exponent < -14 ? 13 + (-14 - exponent) : 13;
  const uint32_t half_way = 1u << (shift - 1);
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  mantissa >>= shift;
  if (rest > half_way || (rest == half_way && (mantissa & 1) != 0)) ++mantissa;
  // A mantissa that rounds up to the next power of two carries into the exponent by itself.
  const uint32_t biased = exponent < -14 ? 0 : static_cast<uint32_t>(exponent + 14) << 10;
  return static_cast<uint16_t>(sign | (biased + mantissa));
}

inline float Bf16ToFloat(uint16_t b) { return FloatFromBits(static_cast<uint32_t>(b) << 16); }

inline uint16_t FloatToBf16(float f) {
  const uint32_t bits = BitsFromFloat(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace hearth
