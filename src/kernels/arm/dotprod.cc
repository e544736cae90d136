// NEON with the dot product instructions of Armv8.2.
#define HEARTH_ISA dotprod
#include <arm_neon.h>

#include "kernels/arm/dot_quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

// 32 registers: 16 sums of floats; 12 of integers and 12 of floats for a tile and 3 tokens.
inline constexpr int kRowsOfFloatTile = 4;
inline constexpr int kMostSums = 12;
inline constexpr int kMostTilesOfChunk = 1;
inline constexpr bool kMultipliesPacked = false;
inline constexpr int kDotInstructions = 1;

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/arm/partial_neon-inl.h"
#include "kernels/arm/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/arm/lane_products-inl.h"
#include "kernels/simd/table-inl.h"

namespace hearth::kernels {
constinit const KernelTable kDotProdKernels =
    HEARTH_ISA::MakeTable<HEARTH_ISA::LaneTiles>("dotprod");
}  // namespace hearth::kernels
