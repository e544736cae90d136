// Loads and stores of a part of a vector. NEON has no masks, so they go through a copy.
#pragma once

#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* p, int64_t n) {
  return LoadFirstByCopy(d, p, n);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, T* p, int64_t n) {
  StoreFirstByCopy(v, d, p, n);
}

}  // namespace hearth::kernels::HEARTH_ISA
