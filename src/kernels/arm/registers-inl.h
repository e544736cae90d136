// The vector registers of 64-bit Arm, for probe-inl.h.
#pragma once

#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

inline constexpr int kVectorRegisters = 32;

template <class V>
HWY_INLINE void KeepInRegister(V& v) {
  asm volatile("" : "+w"(v.raw));
}

}  // namespace hearth::kernels::HEARTH_ISA
