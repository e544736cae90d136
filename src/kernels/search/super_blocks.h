// A block of 256 weights, of a K type or IQ4_XS, by search (search_encode.h).
#pragma once

#include "tensor/blocks.h"

namespace hearth::kernels::search {

// importance: 256 numbers, or null.
void Encode(const float* in, const float* importance, BlockQ2_K& block);
void Encode(const float* in, const float* importance, BlockQ3_K& block);
void Encode(const float* in, const float* importance, BlockQ4_K& block);
void Encode(const float* in, const float* importance, BlockQ5_K& block);
void Encode(const float* in, const float* importance, BlockQ6_K& block);
void Encode(const float* in, const float* importance, BlockIQ4_XS& block);

}  // namespace hearth::kernels::search
