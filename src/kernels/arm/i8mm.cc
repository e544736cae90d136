// NEON with the matrix products of Armv8.6: several tokens times tiles, and the rest as with the
// dot product instructions.
#define HEARTH_ISA i8mm
#include <arm_neon.h>

#include "kernels/arm/dot_quads-inl.h"
#include "kernels/tables.h"

namespace hearth::kernels::HEARTH_ISA {

// 32 registers: 16 sums of floats; 12 of integers and 12 of floats for 8 rows and 6 tokens.
inline constexpr int kRowsOfFloatTile = 4;
inline constexpr int kMostSums = 12;
inline constexpr int kMostTilesOfChunk = 1;
inline constexpr bool kMultipliesPacked = false;
inline constexpr int kDotInstructions = 1;

}  // namespace hearth::kernels::HEARTH_ISA

#include "kernels/arm/partial_neon-inl.h"
#include "kernels/arm/registers-inl.h"
// The bodies use what is defined above.
#include "kernels/arm/row_pairs-inl.h"
#include "kernels/simd/table-inl.h"

namespace hearth::kernels::HEARTH_ISA {

constexpr KernelTable MakeI8mmTable() {
  KernelTable t = MakeTable<RowPairTiles>("i8mm");
  t.tile_unit.columns = 8;
  t.tile_unit.tokens = 2;
  t.tile_unit.rows = 2 * kRowPairs;
  // 2 x 8 times 8 x 2
  t.probe_int8 = ProbeInt8<WideSums<AddMatrixProduct>, 32>;
  return t;
}

}  // namespace hearth::kernels::HEARTH_ISA

namespace hearth::kernels {
constinit const KernelTable kI8mmKernels = HEARTH_ISA::MakeI8mmTable();
}  // namespace hearth::kernels
