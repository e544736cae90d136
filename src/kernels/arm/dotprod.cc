// NEON with the dot product instructions of Armv8.2.
#define HEARTH_ISA dotprod
#include <arm_neon.h>

#include "kernels/quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

// 32 registers: 16 sums.
inline constexpr int kRowsOfFloatTile = 4;
inline constexpr int kTilesAtOnce = 1;
inline constexpr int64_t kPanelTokens = 4;

HWY_INLINE IntVec DotQuads(IntVec sums, Bytes u, Bytes s) {
  return IntVec{vdotq_s32(sums.raw, vreinterpretq_s8_u8(u.raw), vreinterpretq_s8_u8(s.raw))};
}
// Both operands are signed: 8-bit codes are what they stand for.
inline constexpr int32_t kOffsetQ8_0 = 0;
HWY_INLINE Bytes PrepareQ8_0(Bytes w) { return w; }
HWY_INLINE IntVec DotQ8_0(IntVec sums, Bytes w, Bytes x) { return DotQuads(sums, w, x); }

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/arm/partial_neon-inl.h"
#include "kernels/arm/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kDotProdKernels = HEARTH_ISA::MakeTable("dotprod");
}  // namespace hearth::kernels
