// How many bits of a key or value of the KV cache get which meaning (tensor/kv_layout.h): the
// scalar part of its encoding, which all instruction sets share so that codes are the same bits.
#pragma once

#include <cstdint>

namespace hearth::kernels {

// A key's codes: component i is zero + scale * code, with code = round((x - zero) * inverse) to
// nearest-even, 0 <= code <= most_code. An inverse of 0 gives codes 0.
struct KeyRange {
  uint16_t scale = 0;  // binary16
  uint16_t zero = 0;
  float zero_value = 0;  // `zero` as a float
  float inverse = 0;
};

// An fp8 value: component i is scale * fp8(x * inverse). An inverse of 0 gives zeros.
struct ValueRange {
  uint16_t scale = 0;  // binary16
  float inverse = 0;
};

// The range of a key with these least and largest components. zero is `least` rounded down and
// scale is rounded up, so that no component is cut off: each is met within half a scale.
// largest_bits are those of the largest magnitude. One that binary16 does not hold, or NaN, makes
// the scale NaN, so that it shows in every score.
KeyRange RangeOfKey(float least, float largest, uint32_t largest_bits, int32_t most_code) noexcept;

// The range of a value whose largest magnitude has these bits. The scale is rounded up, so that the
// largest component becomes at most 448. NaN, infinity and magnitudes beyond 448 * 65504 make the
// scale NaN; those below 2^-100 count as zeros.
ValueRange RangeOfValue(uint32_t largest_bits) noexcept;

}  // namespace hearth::kernels
