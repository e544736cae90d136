// AVX2 with FMA and F16C: bytes are multiplied in pairs to 16 bits, then added in pairs to 32.
#define HEARTH_ISA avx2
#include <immintrin.h>

#include "kernels/simd/quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

inline constexpr int kRowsOfFloatTile = 3;  // 16 registers: 12 sums
inline constexpr int kMostSums = 8;         // of integers; those of floats wait in memory
inline constexpr int kMostTilesOfChunk = 2;
inline constexpr bool kMultipliesPacked = true;
inline constexpr int kDotInstructions = 2;

HWY_INLINE Pairs PairProducts(Bytes u, Bytes s) {
  return Pairs{_mm256_maddubs_epi16(u.raw, s.raw)};
}
HWY_INLINE IntVec SumOfPairs(Pairs pairs) {
  return IntVec{_mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1))};
}

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/x86/pair_sums-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Signed times signed as |w| * (x with the sign of w).
HWY_INLINE IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x) {
  return DotQuads(sums, Bytes{_mm256_sign_epi8(w.raw, w.raw)},
                  Bytes{_mm256_sign_epi8(x.raw, w.raw)});
}

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/x86/partial_avx-inl.h"
#include "kernels/x86/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/simd/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kAvx2Kernels = HEARTH_ISA::MakeTable("avx2");
}  // namespace hearth::kernels
