// A block of 32 weights by search (search_encode.h).
#pragma once

#include "tensor/blocks.h"

namespace hearth::kernels::search {

// importance: 32 numbers, or null.
void Encode(const float* in, const float* importance, BlockQ4_0& block);
void Encode(const float* in, const float* importance, BlockQ4_1& block);
void Encode(const float* in, const float* importance, BlockQ5_0& block);
void Encode(const float* in, const float* importance, BlockQ5_1& block);
void Encode(const float* in, const float* importance, BlockQ8_0& block);
void Encode(const float* in, const float* importance, BlockIQ4_NL& block);
void Encode(const float* in, const float* importance, BlockMXFP4& block);

}  // namespace hearth::kernels::search
