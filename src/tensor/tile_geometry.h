// How a product of weight tiles (tensor/weight_tiles.h) with some tokens is cut into pieces whose
// sums stay in registers: M's e_p and h_p (MNN §5.1), as far as they can be chosen at run time.
#pragma once

#include <cstdint>

namespace hearth {

// Results have the same bits with every geometry.
struct TileGeometry {
  int64_t panel_tokens = 1;  // e_p: tokens that are multiplied together
  int64_t tiles = 1;         // tiles at once: h_p is 16 times that
  // Whether some blocks of the tiles are unpacked to bytes first, for all panels. Tiles of stored
  // blocks (TileScales::kStored) always are.
  bool unpacks = false;

  friend bool operator==(const TileGeometry&, const TileGeometry&) = default;
};

// The geometry for products with so many tokens.
struct TilesForTokens {
  int64_t tokens = 1;
  TileGeometry geometry;

  friend bool operator==(const TilesForTokens&, const TilesForTokens&) = default;
};

// Numbers of tokens, and of tiles, that kernels are compiled for. A panel of another number of
// tokens is cut into these, the largest first.
inline constexpr int kTokenSteps[] = {1, 2, 3, 4, 6, 12};
inline constexpr int kTileSteps[] = {1, 2, 4};

// The largest of kTokenSteps that is at most `tokens` >= 1.
constexpr int TokenStep(int64_t tokens) {
  int step = 1;
  for (const int s : kTokenSteps) {
    if (s <= tokens) step = s;
  }
  return step;
}

// Tokens that pass by each time a chunk is unpacked, rounded down to whole panels: their sums stay
// in the first-level cache, their activations in the second-level one.
inline constexpr int64_t kTokensOfChunk = 96;

// Tokens that chunks are multiplied with at once, at most: as many more are no faster there.
inline constexpr int kTokensTimesChunk = 6;

// Blocks of a chunk: 16 KB of bytes for two tiles, a third of a first-level cache.
inline constexpr int64_t kBlocksOfChunk = 16;

}  // namespace hearth
