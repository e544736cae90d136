// Armv8.0 NEON, what every 64-bit Arm has: bytes are multiplied to 16 bits, then added in pairs.
#define HEARTH_ISA neon
#include <arm_neon.h>

#include "kernels/simd/quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

// 32 registers: 16 sums.
inline constexpr int kRowsOfFloatTile = 4;
inline constexpr int kMostSums = 16;
inline constexpr int kMostTilesOfChunk = 1;
inline constexpr bool kMultipliesPacked = false;
inline constexpr int kDotInstructions = 6;

HWY_INLINE IntVec DotQuads(IntVec sums, Bytes u, Bytes s) {
  // A pair of products, at most 2 * 128 * 127, fits 16 bits. (Activations are never -128.)
  const int16x8_t low =
      vmull_s8(vget_low_s8(vreinterpretq_s8_u8(u.raw)), vget_low_s8(vreinterpretq_s8_u8(s.raw)));
  const int16x8_t high = vmull_high_s8(vreinterpretq_s8_u8(u.raw), vreinterpretq_s8_u8(s.raw));
  return IntVec{vpadalq_s16(sums.raw, vpaddq_s16(low, high))};
}
// Both operands are signed: 8-bit codes are what they stand for.
inline constexpr int32_t kOffsetQ8_0 = 0;
HWY_INLINE Bytes PrepareQ8_0(Bytes w) { return w; }
HWY_INLINE IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x) { return DotQuads(sums, w, x); }
using NibbleSums = WideSums<DotQuads>;

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/arm/partial_neon-inl.h"
#include "kernels/arm/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/simd/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kNeonKernels = HEARTH_ISA::MakeTable("neon");
}  // namespace hearth::kernels
