// Chooses tile sizes by equations (MNN §5.1, equations 2 to 4): the ones that take the fewest
// memory accesses among those whose sums stay in registers.
//
// M's model. A tile of e_p tokens and h_p rows loads e_p * l_p activations and h_p * l_p weights
// for each l_p columns, and stores e_p * h_p results:
//   minimize (e / e_p) (h / h_p) (l e_p + l h_p + h_p e_p)     equation 2, accesses
//   subject to  e_p + h_p + h_p e_p <= R                        equation 3, in vectors
//   l_p = the columns that one instruction adds up              equation 4
// SolveTable2 solves just that, by trying everything.
//
// SolveTiles solves another model, because Hearth's kernels differ:
//   1. Integer sums end with every block of 32 columns, or half a block, and are added to float
//      sums, which need as many registers again. Only the integer sums must fit; float sums without
//      a register wait in memory and are loaded and stored once per block.
//   2. A block's scales are loaded and applied for every row and token: three float instructions
//      per sum. They bound the speed as accesses do. So arithmetic is counted too, and the larger
//      of the two counts.
//   3. Weights lie packed. Either every panel masks and shifts their codes anew (4 bits: half of
//      the loads), or a chunk is unpacked once, which costs stores, and is shared by up to
//      kTokensOfChunk tokens.
//   4. Weights lie in tiles of 16 rows, whatever the instruction set, and l_p is part of that
//      layout: neither is chosen here.
//   5. The number of tokens is known when a product is computed: the last, smaller panel counts as
//      it is.
// One token uses every weight once, so that accesses are the same for all geometries. There the
// number of streams that the processor's prefetchers follow best decides (BestSideBySide).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "tensor/tile_geometry.h"

namespace hearth::kernels {

// An instruction set as M sees it. M does not print these inputs: they are those of the
// instructions it names, and with them the equations have Table 2 as their solution.
struct MnnUnit {
  int64_t registers;            // R
  int64_t columns;              // l_p
  int64_t results_of_register;  // sums
  int64_t rows_of_register;     // of weights
  int64_t tokens_of_register;   // of activations: one that is broadcast, or several
};

struct MnnTiles {
  int64_t tokens = 0;   // e_p
  int64_t rows = 0;     // h_p
  int64_t columns = 0;  // l_p

  friend bool operator==(const MnnTiles&, const MnnTiles&) = default;
};

// Solves equations 2 to 4 for matrices that are large beside a tile. Activations are loaded 16
// bytes at a time, so that e_p * l_p is a multiple of that; h_p is a power of two, so that tiles of
// matrices fill them. Of equal solutions the one with more tokens, because weights are unpacked.
MnnTiles SolveTable2(const MnnUnit& unit);

// The geometries that kernels are compiled for and that make a difference for so many tokens >= 1.
// Never empty.
std::vector<TileGeometry> TileGeometries(const TileUnit& unit, int64_t tokens);

// What a product of `tokens` > 1 tokens costs by the model above, for 16 rows and a block of 32
// columns with 4-bit codes, in vector instructions; infinite where integer sums do not fit. The
// geometry is one of TileGeometries.
double TileCost(const TileUnit& unit, int64_t tokens, const TileGeometry& geometry);

// The one of TileGeometries that costs least, of equal ones (within 0.1%) the one with most tokens;
// for one token the one with `streams` tiles.
TileGeometry SolveTiles(const TileUnit& unit, int64_t tokens, int64_t streams);

// The geometry for every number of tokens. Immutable.
class TileChoice {
 public:
  // For numbers of tokens up to the largest in `measured`, which ascends, the geometry of the next
  // one there that is not smaller; for larger ones that of the largest. Without any, SolveTiles.
  // Throws Error(kInvalidArgument) for a geometry that is none of TileGeometries.
  TileChoice(const TileUnit& unit, int64_t streams, std::span<const TilesForTokens> measured = {});

  const TileGeometry& For(int64_t tokens) const {
    const auto last = static_cast<int64_t>(by_tokens_.size()) - 1;
    return by_tokens_[static_cast<size_t>(tokens < last ? tokens : last)];
  }

 private:
  std::vector<TileGeometry> by_tokens_;  // of the last number of tokens, and of more
};

}  // namespace hearth::kernels
