// Loads and stores of a part of a vector with the masked instructions of AVX2 and AVX-512, which
// do not touch the memory of lanes that are off.
#pragma once

#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

HWY_INLINE FloatVec LoadFirst(FloatTag d, const float* p, int64_t n) {
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
}

HWY_INLINE void StoreFirst(FloatVec v, FloatTag d, float* p, int64_t n) {
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
}

// AVX2's masked loads take 32-bit elements of whole registers.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* p, int64_t n) {
  constexpr size_t kPerWord = sizeof(int32_t) / sizeof(T);
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
  } else if constexpr (hn::MaxLanes(D()) * sizeof(T) >= 16) {
    if (static_cast<size_t>(n) % kPerWord == 0) {
      const hn::Repartition<int32_t, D> words;
      const auto mask = hn::FirstN(words, static_cast<size_t>(n) / kPerWord);
      const void* at = p;
      return hn::BitCast(d, hn::MaskedLoad(mask, words, static_cast<const int32_t*>(at)));
    }
  }
  return LoadFirstByCopy(d, p, n);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreFirst(hn::Vec<D> v, D d, T* p, int64_t n) {
  StoreFirstByCopy(v, d, p, n);
}

}  // namespace hearth::kernels::HEARTH_ISA
