// Calls of what is compiled for some numbers of tokens and tiles (tensor/tile_geometry.h), with any
// number of tokens. Functions of that header are only called for constants: they belong to no
// instruction set.
#pragma once

#include "kernels/simd/quads-inl.h"
#include "tensor/tile_geometry.h"

namespace hearth::kernels::HEARTH_ISA {

// Tokens that G tiles are multiplied with at once, at most: their integer sums take kMostSums
// vectors (of the ISA file). The largest step that is.
template <int G>
inline constexpr int kMostTokens = TokenStep(kMostSums / (G * kVectorsPerLine));

// Calls f.operator()<n>() for the largest step n that is at most `tokens` and Most, a step itself;
// returns n.
template <int Most, class F>
HWY_INLINE int64_t WithTokenStep(int64_t tokens, const F& f) {
  if constexpr (Most > 1) {
    if (tokens < Most) return WithTokenStep<TokenStep(Most - 1)>(tokens, f);
  }
  f.template operator()<Most>();
  return Most;
}

// Calls f.operator()<n>() for n tiles at once, one of kTileSteps that is at most Most.
template <int Most, class F>
HWY_INLINE void WithTiles(int64_t tiles, const F& f) {
  if constexpr (Most > 1) {
    if (tiles < Most) return WithTiles<Most / 2>(tiles, f);
  }
  f.template operator()<Most>();
}

// Calls f.operator()<n>(first) for pieces [first, first + n) of `tokens` tokens.
template <int Most, class F>
HWY_INLINE void ForTokenSteps(int64_t tokens, const F& f) {
  for (int64_t t = 0; t < tokens;) {
    t += WithTokenStep<Most>(tokens - t,
                             [&]<int N>() HEARTH_INLINED { f.template operator()<N>(t); });
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
