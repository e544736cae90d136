// Conversions between float and fp8 E4M3 (sign, 4 bits of exponent, 3 of mantissa), in portable
// arithmetic. It has numbers up to 448 and no infinity; its least ones are multiples of 2^-9.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/half.h"

namespace hearth {

inline constexpr float kMostFp8 = 448.0f;
inline constexpr uint32_t kMostFp8Bits = 0x7e;  // 0x7f is no number and is never made
inline constexpr float kLeastNormalFp8 = 0x1p-6f;

inline float Fp8ToFloat(uint8_t f) {
  const float sign = (f & 0x80) != 0 ? -1.0f : 1.0f;
  const int exponent = (f >> 3) & 15;
  const int mantissa = f & 7;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

// Rounds to nearest, ties to even; larger magnitudes than kMostFp8 become that. x is a number.
inline uint8_t FloatToFp8(float x) {
  const uint32_t bits = BitsFromFloat(x);
  const uint32_t sign = (bits >> 24) & 0x80;
  const uint32_t magnitude = bits & 0x7fffffff;
  const float size = FloatFromBits(magnitude);
  uint32_t code;
  if (size < kLeastNormalFp8) {
    code = static_cast<uint32_t>(std::nearbyint(size * 0x1p9f));
  } else {
    constexpr uint32_t kBiasDifference = (127 - 7) << 3;
    code = ((magnitude + 0x7ffff + ((magnitude >> 20) & 1)) >> 20) - kBiasDifference;
  }
  return static_cast<uint8_t>(sign | (code < kMostFp8Bits ? code : kMostFp8Bits));
}

}  // namespace hearth
