// How many bits of a key or value of the KV cache get which meaning (tensor/kv_layout.h): the
// scalar part of its encoding, which all instruction sets share so that codes are the same bits.
#pragma once

#include <cstdint>

namespace hearth::kernels {

// A key's codes: component i is zero + scale * code, with code = round((x - zero) * inverse) to
// nearest-even, cut off at 0 and most_code. An inverse of 0 gives codes 0.
struct KeyRange {
  uint16_t scale = 0;  // binary16
  uint16_t zero = 0;
  float zero_value = 0;  // `zero` as a float
  float inverse = 0;
  float most_code = 0;
};

// Up to this many codes less one, ranges are those of NearestRangeOfKey.
inline constexpr int32_t kMostNearestCode = 15;

// Codes to try for a key's components x, of which units are counted: 4,095ths of what they span
// above the least, rounded. code = round((unit - zero) * inverse), cut off at 0 and most_code.
struct KeyCodesToTry {
  const float* x;
  int64_t n;
  float least;
  float units;  // in 1
  float zero;   // in units
  float inverse;
  float most_code;
};
// Sums over components of their codes, the codes' squares, their units and code * unit. Integers,
// so that the order of adding does not matter; exact for n up to 30,000 and 15 codes.
struct KeyCodeSums {
  int32_t codes = 0;
  int32_t squares = 0;
  int32_t units = 0;
  int32_t products = 0;
};
using KeyCodeSumsFn = KeyCodeSums (*)(const KeyCodesToTry&) noexcept;

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

// Looks for a range whose codes have a smaller sum of squared errors than those of `whole`, which
// RangeOfKey gave for these n components; returns `whole` if it finds none. The codes may cut off
// the outermost components. Of 32 normal components and 16 codes it is a seventh less. It tries
// what the components span and 0.95 of it, and fits each to the codes that it gave, twice. `sums`
// is called at most 8 times.
KeyRange NearestRangeOfKey(const float* x, int64_t n, float least, float largest,
                           const KeyRange& whole, KeyCodeSumsFn sums) noexcept;

// The range of a value whose largest magnitude has these bits. The scale is rounded up, so that the
// largest component becomes at most 448. NaN, infinity and magnitudes beyond 448 * 65504 make the
// scale NaN; those below 2^-100 count as zeros.
ValueRange RangeOfValue(uint32_t largest_bits) noexcept;

}  // namespace hearth::kernels
