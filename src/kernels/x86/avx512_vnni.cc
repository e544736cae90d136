// AVX-512 with VNNI: one instruction adds up four byte products per lane.
#define HEARTH_ISA avx512_vnni
#include <immintrin.h>

#include "kernels/simd/quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

inline constexpr int kRowsOfFloatTile = 4;  // 32 registers: 16 sums
inline constexpr int kMostSums = 12;        // of integers; and as many of floats
inline constexpr int kMostTilesOfChunk = 2;
inline constexpr bool kMultipliesPacked = true;
inline constexpr int kDotInstructions = 1;

// The sums of four products are exact for any unsigned byte, so 8-bit codes get an offset.
inline constexpr int32_t kOffsetQ8_0 = 128;

HWY_INLINE IntVec DotQuads(IntVec sums, Bytes u, Bytes s) {
  return IntVec{_mm512_dpbusd_epi32(sums.raw, u.raw, s.raw)};
}
HWY_INLINE Bytes PrepareQ8_0(Bytes w) { return hn::Xor(w, hn::Set(ByteTag(), uint8_t{0x80})); }
HWY_INLINE IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x) { return DotQuads(sums, w, x); }
using NibbleSums = WideSums<DotQuads>;

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/x86/partial_avx-inl.h"
#include "kernels/x86/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/simd/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kAvx512VnniKernels = HEARTH_ISA::MakeTable("avx512-vnni");
}  // namespace hearth::kernels
