// Quantization by search, for files that are written once and read often: of every block the scale,
// and the minimum where the type has one, with which the weighted squared error is least. Many
// roundings are tried; each gets the scale and minimum that fit its codes best (least squares).
//
// kernels::Quantize (dequantize.h) is the fast one, whose bounds other code relies on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hearth::kernels {

// True for F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
// IQ4_XS and MXFP4.
bool CanSearch(DType dtype);

// n weights of a row to `dtype`, n a multiple of its block size. importance: how much the squared
// error of each weight counts, n finite numbers >= 0, of which only ratios within a block matter;
// null: all the same. Float types are rounded to nearest.
//
// Deterministic; needs no alignment of `out`. NaN becomes 0, and a value beyond what a type's
// scales can express the nearest that they can. A block whose values are all below 2^-40 becomes
// zeros, one whose importance is all zero is encoded as without it. A type that CanSearch denies
// becomes zeros.
void EncodeBySearch(DType dtype, const float* in, int64_t n, const float* importance,
                    std::byte* out) noexcept;

}  // namespace hearth::kernels
