// The float vector of the instruction set being compiled, through Highway, and how kernels treat
// what is left over at the end of an array.
//
// How the -inl.h files of this folder work: an ISA file (kernels/x86/avx2.cc, kernels/arm/neon.cc,
// ...) defines HEARTH_ISA as the name of its namespace and includes its primitives and table-inl.h,
// which includes the bodies; each opens hearth::kernels::HEARTH_ISA. So every ISA gets a copy of
// its own, compiled with its flags. What is in these files must stay inside that namespace, and
// must not use inline functions or templates of std:: or of other folders: the linker keeps one
// copy of such a function for the whole program, which could be the one with AVX-512 in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"

namespace hearth::kernels::HEARTH_ISA {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;    // as many 16-bit lanes as FloatTag has
using BHalfTag = hn::Rebind<hwy::bfloat16_t, FloatTag>;  // floats
using HalfBitsTag = hn::Rebind<uint16_t, FloatTag>;

inline constexpr FloatTag kFloats{};
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kFloats));

// Calls f.operator()<I>() for I = 0 .. N - 1. Arrays of vectors that are indexed like this stay in
// registers; of those that loops index GCC keeps a copy in memory. Lambdas to call are marked
// HEARTH_INLINED after their parameters.
#define HEARTH_INLINED __attribute__((always_inline))
template <int N, class F>
HWY_INLINE void Unrolled(const F& f) {
  // Side by side, not as a recursion: the compiler would copy the rest of the bodies at each level.
  [&]<int... i>(std::integer_sequence<int, i...>) HEARTH_INLINED {
    (f.template operator()<i>(), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Calls f.operator()<n>() for a number n, 1 <= n <= N, that is only known at run time.
template <int N, class F>
HWY_INLINE void WithCount(int64_t n, const F& f) {
  if constexpr (N > 1) {
    if (n < N) return WithCount<N - 1>(n, f);
  }
  f.template operator()<N>();
}

// Asks for the line at p, which may lie past the end of what is read: a prefetch never faults.
//
// Into the second-level cache, where it is needed so late that much else is read before. What is
// computed with and as much again would not fit into a first-level cache of 32 KiB, where the two
// drive each other out; an L1 miss that L2 has is hidden by the work around it.
HWY_INLINE void FetchAhead(const void* p) { __builtin_prefetch(p, 0, 2); }
// The same, into the first-level cache where `near`.
HWY_INLINE void FetchAhead(const void* p, bool near) {
  if (near) {
    __builtin_prefetch(p, 0, 3);
  } else {
    FetchAhead(p);
  }
}

// The first n < Lanes(d) elements at p, zeros in the other lanes; reads nothing after them. For
// instruction sets (and element sizes) without masked loads.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadFirstByCopy(D d, const T* p, int64_t n) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return hn::Load(d, lanes);
}

// Writes the first n < Lanes(d) lanes to p and nothing after them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreFirstByCopy(hn::Vec<D> v, D d, T* p, int64_t n) {
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}

}  // namespace hearth::kernels::HEARTH_ISA
