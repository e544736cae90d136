// Conversions between stored weight types and float, in portable code: the definition of what a
// stored weight means. Not fast; used at load, by tools and as the oracle of kernel tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hearth::kernels {

// n weights of any float or quantized type (not I8..I64) to float. n is a multiple of the block
// size. Reads RowBytes(dtype, n) bytes, which need no alignment.
void Dequantize(DType dtype, const std::byte* in, int64_t n, float* out) noexcept;

// True for the types that Quantize can make: F32, F16, BF16, Q4_0, Q4_1, Q8_0.
bool CanQuantize(DType dtype);

// n floats to `dtype`. Q4_0: the scale is chosen from the value of largest magnitude, sign
// included (code 0 stands for it); Q4_1: from minimum and maximum; Q8_0: symmetric over 127.
//
// Deterministic, and never further from the values of a block of 32 than, with amax their largest
// magnitude and range their maximum less their minimum:
//   Q4_0  amax/8 * (1 + 2^-8) + 2^-21     (amax/16 for values not at the far end of the range)
//   Q4_1  range/30 + range * 2^-10 + amax * 2^-11 + 2^-20
//   Q8_0  amax/254 + amax * 2^-10 + 2^-18
// The small terms are the rounding of the scales to half precision, the constants its subnormals.
// In the quantized types NaN becomes 0, and values beyond what the scales can express (8, 1 and
// 127 times 65504) become the nearest that they can.
void Quantize(DType dtype, const float* in, int64_t n, std::byte* out) noexcept;

// The type that a stored one is converted to for kernels that do not take it (those of single rows;
// all, where it has no tiles either), itself where it needs none. Where two targets are sensible
// (Q4_K, IQ4_NL, MXFP4: Q4_1 or Q8_0) the caller tries both with Convert and keeps the one with the
// smaller error; see ConversionTargets.
struct ConversionTargets {
  DType first;
  DType second;  // equal to first where there is no choice
};
ConversionTargets ConversionTargetsOf(DType dtype);

// n weights from one type to another, `to` being a type that Quantize can make or `from` itself.
// Exact where the formats allow it (Q5_0, IQ4_NL, MXFP4 to Q8_0 while the scale fits a half; Q4_K
// to Q4_1 up to the rounding of its scales), otherwise through float. n is a multiple of both
// block sizes. What it costs is listed in convert.cc.
void Convert(DType from, const std::byte* in, int64_t n, DType to, std::byte* out) noexcept;

}  // namespace hearth::kernels
