// AVX-512 without VNNI: floats in 512 bits, bytes as in AVX2 but with 32 registers.
#define HEARTH_ISA avx512
#include <immintrin.h>

#include "kernels/simd/quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

inline constexpr int kRowsOfFloatTile = 4;  // 32 registers: 16 sums
inline constexpr int kMostSums = 12;        // of integers; and as many of floats
inline constexpr int kMostTilesOfChunk = 2;
inline constexpr bool kMultipliesPacked = true;
inline constexpr int kDotInstructions = 2;

HWY_INLINE Pairs PairProducts(Bytes u, Bytes s) {
  return Pairs{_mm512_maddubs_epi16(u.raw, s.raw)};
}
HWY_INLINE IntVec SumOfPairs(Pairs pairs) {
  return IntVec{_mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1))};
}

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/x86/pair_sums-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Signed times signed as |w| * (x with the sign of w).
HWY_INLINE IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x) {
  const __mmask64 negative = _mm512_movepi8_mask(w.raw);
  const __m512i flipped = _mm512_mask_sub_epi8(x.raw, negative, _mm512_setzero_si512(), x.raw);
  return DotQuads(sums, Bytes{_mm512_abs_epi8(w.raw)}, Bytes{flipped});
}

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/x86/partial_avx-inl.h"
#include "kernels/x86/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/simd/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kAvx512Kernels = HEARTH_ISA::MakeTable("avx512");
}  // namespace hearth::kernels
