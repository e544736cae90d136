// The vector registers of x86, for probe-inl.h.
#pragma once

#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Vectors of 512 bits come with 32 registers, shorter ones (as used here) with 16.
inline constexpr int kVectorRegisters = kLanes == 16 ? 32 : 16;

template <class V>
HWY_INLINE void KeepInRegister(V& v) {
  asm volatile("" : "+v"(v.raw));
}

}  // namespace hearth::kernels::HEARTH_ISA
