// Products of weight tiles (tile_types-inl.h) with int8 activations.
//
// A lane is a row. A block of 32 columns gives one exact integer per row and token, made of eight
// byte products; it is scaled by the row's and the token's scale and added to a float. A type with
// a scale for every 16 columns does that twice, for the two parts of a block. One token
// (decode), or a few (sequences decoded together), read the tiles as they lie. Many (prefill) first
// unpack some blocks of a few tiles into bytes, which stay in the first-level cache while many
// tokens go by; the float sums of a row and token pause in memory between such chunks, so that
// their order of addition is that of one token alone. Stored blocks (stored_tiles-inl.h) take that
// way for a single token too. (Not in `out`: the distance between its
// tokens is often a multiple of 4096 bytes, and they would push each other out of the caches.)
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/tile_chunks-inl.h"
#include "kernels/simd/tile_types-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// How far ahead of its use each of G tiles is asked for that one token is multiplied with side by
// side. docs/decisions/0005-tiles-of-rows.md has what was measured.
template <int G>
inline constexpr uintptr_t kTilePrefetchBytes = G == 1 ? 4096 : 1024;

// What one token and a tile have added up so far.
struct TokenSums {
  FloatVec of_vector[kVectorsPerLine];
};

// Adds part kPart of a block.
template <class Codes, int kPart>
HWY_INLINE void AddPartOfToken(TileParts<Codes> parts, const BlockQ8& x, TokenSums& sums) {
  constexpr int kVectors = kVectorsPerLine;
  typename Codes::Sums products[kVectors];
  for (auto& product : products) product.Start(StartOfSums<Codes, kPart>(x));
  Unrolled<kQuadsOfPart<Codes>>([&]<int i>() HEARTH_INLINED {
    constexpr int q = kPart * kQuadsOfPart<Codes> + i;
    const Bytes quad = BroadcastQuad(x.codes + 4 * q);
    for (int v = 0; v < kVectors; ++v) {
      products[v].Add(QuadOf<Codes, q>(parts.codes(), v), quad);
    }
  });
  const FloatVec x_scale = hn::Set(kFloats, x.scale);
  for (int v = 0; v < kVectors; ++v) {
    FloatVec& sum = sums.of_vector[v];
    const FloatVec scale = hn::Mul(ScalesOf<Codes, kPart>(parts, v), x_scale);
    sum = hn::MulAdd(hn::ConvertTo(kFloats, products[v].Total()), scale, sum);
    if constexpr (kHasMinimums<Codes>) {
      const FloatVec x_sum = hn::Set(kFloats, RealSum<Codes, kPart>(x));
      sum = hn::MulAdd(MinimumsOf<Codes, kPart>(parts, v), x_sum, sum);
    }
  }
}

// Adds a block. Asks for its share of the group that lies `distance` bytes ahead, which may lie
// past the weights, where that does nothing.
template <class Codes>
HWY_INLINE void AddBlockOfToken(TileParts<Codes> parts, const BlockQ8& x, uintptr_t distance,
                                TokenSums& sums) {
  using Parts = TileParts<Codes>;
  if constexpr (Parts::kGroupBlocks == 2) {
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(parts.group) + distance;
    constexpr int64_t kHalf = (Parts::kGroupBytes / kLineBytes / 2) * kLineBytes;
    for (int64_t at = parts.which * kHalf; at < (parts.which == 0 ? kHalf : Parts::kGroupBytes);
         at += kLineBytes) {
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + static_cast<uintptr_t>(at)));
    }
  } else {
    FetchBlockAhead<Codes, true>(parts, distance);
  }
  Unrolled<kPartsOf<Codes>>([&]<int kPart>()
                                HEARTH_INLINED { AddPartOfToken<Codes, kPart>(parts, x, sums); });
}

// One token times G tiles, read side by side as so many streams.
template <class Codes, int G>
HWY_INLINE void TilesTimesToken(const TileMatMulArgs& a, int64_t first_tile) {
  using Parts = TileParts<Codes>;
  const uint8_t* group =
      reinterpret_cast<const uint8_t*>(a.tiles) + static_cast<size_t>(first_tile) * a.tile_bytes;
  TokenSums sums[G];
  for (TokenSums& of_tile : sums) {
    for (FloatVec& sum : of_tile.of_vector) sum = hn::Zero(kFloats);
  }
  const auto add_block = [&](int64_t which, const BlockQ8& x) HEARTH_INLINED {
    for (int g = 0; g < G; ++g) {
      const Parts parts = {group + static_cast<size_t>(g) * a.tile_bytes, which};
      AddBlockOfToken<Codes>(parts, x, kTilePrefetchBytes<G>, sums[g]);
    }
  };
  int64_t b = 0;
  for (; b + Parts::kGroupBlocks <= a.blocks; b += Parts::kGroupBlocks) {
    if constexpr (Parts::kGroupBlocks == 2) {
      add_block(0, a.x[b]);
      add_block(1, a.x[b + 1]);
    } else {
      for (int64_t which = 0; which < Parts::kGroupBlocks; ++which)
        add_block(which, a.x[b + which]);
    }
    group += Parts::kGroupBytes;
  }
  if constexpr (Parts::kGroupBlocks == 2) {
    if (b < a.blocks) add_block(0, a.x[b]);
  } else {
    for (int64_t which = 0; b < a.blocks; ++which, ++b) add_block(which, a.x[b]);
  }
  for (int g = 0; g < G; ++g) {
    const int64_t tile_index = first_tile + g;
    for (int v = 0; v < kVectorsPerLine; ++v) {
      StoreRows(sums[g].of_vector[v], a.out + (tile_index - a.tile_begin) * kLineLanes, v,
                a.rows - tile_index * kLineLanes);
    }
  }
}

template <class Codes, int G>
HWY_INLINE void AllTilesTimesToken(const TileMatMulArgs& a) {
  int64_t tile = a.tile_begin;
  for (; tile + G <= a.tile_end; tile += G) TilesTimesToken<Codes, G>(a, tile);
  for (; tile < a.tile_end; ++tile) TilesTimesToken<Codes, 1>(a, tile);
}

// Adds part kPart of a block for T tokens, whose blocks lie next to each other from `x` on. The
// quads are multiplied as they come out of the tile: where few panels follow each other, storing
// them as bytes and loading them again takes longer.
template <class Codes, int kPart, int T>
HWY_INLINE void AddPartOfPanel(TileParts<Codes> parts, const BlockQ8* x,
                               FloatVec (&sums)[T][kVectorsPerLine]) {
  constexpr int kVectors = kVectorsPerLine;
  typename Codes::Sums products[T][kVectors];
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    products[i / kVectors][i % kVectors].Start(StartOfSums<Codes, kPart>(x[i / kVectors]));
  });
  Unrolled<kQuadsOfPart<Codes> * kVectors>([&]<int i>() HEARTH_INLINED {
    constexpr int q = kPart * kQuadsOfPart<Codes> + i / kVectors, v = i % kVectors;
    const Bytes quads = QuadOf<Codes, q>(parts.codes(), v);
    Unrolled<T>([&]<int t>() HEARTH_INLINED {
      products[t][v].Add(quads, BroadcastQuad(x[t].codes + 4 * q));
    });
  });
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    constexpr int t = i / kVectors, v = i % kVectors;
    const FloatVec x_scale = hn::Set(kFloats, x[t].scale);
    const FloatVec scale = hn::Mul(ScalesOf<Codes, kPart>(parts, v), x_scale);
    const FloatVec product = hn::ConvertTo(kFloats, products[t][v].Total());
    sums[t][v] = hn::MulAdd(product, scale, sums[t][v]);
    if constexpr (kHasMinimums<Codes>) {
      const FloatVec x_sum = hn::Set(kFloats, RealSum<Codes, kPart>(x[t]));
      sums[t][v] = hn::MulAdd(MinimumsOf<Codes, kPart>(parts, v), x_sum, sums[t][v]);
    }
  });
}

// T tokens of a panel of `panel_tokens`, whose blocks begin at `x`, times one tile. Writes the
// results of these tokens, which begin at number `token`.
template <class Codes, int T>
HWY_NOINLINE void TileTimesPanel(const TileMatMulArgs& a, int64_t tile, const BlockQ8* x,
                                 int64_t panel_tokens, int64_t token) {
  constexpr int kVectors = kVectorsPerLine;
  const auto* weights =
      reinterpret_cast<const uint8_t*>(a.tiles) + static_cast<size_t>(tile) * a.tile_bytes;
  FloatVec sums[T][kVectors];
  Unrolled<T * kVectors>(
      [&]<int i>() HEARTH_INLINED { sums[i / kVectors][i % kVectors] = hn::Zero(kFloats); });
  for (int64_t b = 0; b < a.blocks; ++b, x += panel_tokens) {
    const auto parts = TileParts<Codes>::Of(weights, b);
    FetchBlockAhead(parts, kUnpackPrefetchBytes);
    Unrolled<kPartsOf<Codes>>(
        [&]<int kPart>() HEARTH_INLINED { AddPartOfPanel<Codes, kPart, T>(parts, x, sums); });
  }
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    constexpr int t = i / kVectors, v = i % kVectors;
    StoreRows(sums[t][v], a.out + (token + t) * a.out_stride + (tile - a.tile_begin) * kLineLanes,
              v, a.rows - tile * kLineLanes);
  });
}

template <class Codes>
void TilesTimesFewTokens(const TileMatMulArgs& a) {
  const int64_t panel_tokens = a.geometry.panel_tokens;
  for (int64_t tile = a.tile_begin; tile < a.tile_end; ++tile) {
    for (int64_t t = 0; t < a.tokens; t += panel_tokens) {
      const int64_t tokens = a.tokens - t < panel_tokens ? a.tokens - t : panel_tokens;
      ForTokenSteps<kMostTokens<1>>(tokens, [&]<int T>(int64_t first) HEARTH_INLINED {
        TileTimesPanel<Codes, T>(a, tile, a.x + t * a.blocks + first, tokens, t + first);
      });
    }
  }
}

template <class Codes, template <int> class Chunk>
HWY_INLINE void MatMulPlaneTiles(const TileMatMulArgs& a) {
  if (a.geometry.unpacks || (a.tokens > 1 && !kMultipliesPacked)) {
    AllChunksTimesTokens<Codes, Chunk>(a);
  } else if (a.tokens > 1) {
    if constexpr (kMultipliesPacked) TilesTimesFewTokens<Codes>(a);
  } else {
    WithTiles<4>(a.geometry.tiles,
                 [&]<int G>() HEARTH_INLINED { AllTilesTimesToken<Codes, G>(a); });
  }
}

template <class Codes, template <int> class Chunk>
void MatMulTiles(const TileMatMulArgs& a) noexcept {
  // Stored blocks must be unpacked for one token too, whose products are few beside that.
  if constexpr (kIsStored<Codes>) {
    AllChunksTimesTokens<Codes, Chunk>(a);
  } else {
    MatMulPlaneTiles<Codes, Chunk>(a);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
