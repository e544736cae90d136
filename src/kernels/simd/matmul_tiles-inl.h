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
//
// How a chunk is unpacked and multiplied is a class, UnpackedTiles here. An instruction set that
// multiplies matrices brings its own and names it in MakeTable (table-inl.h):
//   template <int G> struct Chunk   of G tiles, at most kChunkBlocks blocks; lives on the stack
//     template <class Codes> void Unpack(const TileMatMulArgs&, const uint8_t* tile,
//                                        int64_t first, int64_t count)
//     template <class Codes> void MultiplyPanel(const BlockQ8* x, int64_t count, bool is_first,
//                                               float* sums, int64_t tokens) const
// MultiplyPanel adds the products of the `count` blocks with a panel of `tokens` <= kPanelTokens
// tokens to `sums`, a row of 16 * G per token; they are not yet written where is_first. Every sum
// must come about as in TilesTimesToken: exact integers, then the same operations on floats.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/stored_tiles-inl.h"
#include "kernels/simd/tile_types-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Writes the rows that vector v of a tile's lanes stands for; `rows` of the tile exist.
HWY_INLINE void StoreRows(FloatVec sums, float* out, int v, int64_t rows) {
  const int64_t n = rows - v * kLanes;
  if (n >= kLanes) {
    hn::StoreU(sums, kFloats, out + v * kLanes);
  } else if (n > 0) {
    StoreFirst(sums, kFloats, out + v * kLanes, n);
  }
}

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

// How far ahead of its use a tile is asked for: about a chunk, as below.
inline constexpr uintptr_t kUnpackPrefetchBytes = 4096;

// Up to so many panels of tokens are multiplied with the quads as they come out of the tile, once
// for each panel: storing them as bytes and loading them again takes longer. That is with 32
// vectors of 512 bits; elsewhere the sums of a panel do not stay in registers beside all else.
inline constexpr int64_t kPanelsWithoutChunk = kLanes == 16 ? 4 : 0;

// Adds part kPart of a block for T tokens, whose blocks lie next to each other from `x` on.
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

// A panel of T tokens, whose blocks lie next to each other from `x` on, times one tile. Writes the
// results of these tokens, which begin at number `token`.
template <class Codes, int T>
HWY_INLINE void TileTimesPanel(const TileMatMulArgs& a, int64_t tile, const BlockQ8* x,
                               int64_t token) {
  constexpr int kVectors = kVectorsPerLine;
  const auto* weights =
      reinterpret_cast<const uint8_t*>(a.tiles) + static_cast<size_t>(tile) * a.tile_bytes;
  FloatVec sums[T][kVectors];
  Unrolled<T * kVectors>(
      [&]<int i>() HEARTH_INLINED { sums[i / kVectors][i % kVectors] = hn::Zero(kFloats); });
  for (int64_t b = 0; b < a.blocks; ++b, x += T) {
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
  for (int64_t tile = a.tile_begin; tile < a.tile_end; ++tile) {
    for (int64_t t = 0; t < a.tokens; t += kPanelTokens) {
      const int64_t tokens = a.tokens - t < kPanelTokens ? a.tokens - t : kPanelTokens;
      WithCount<kPanelTokens>(tokens, [&]<int T>() HEARTH_INLINED {
        TileTimesPanel<Codes, T>(a, tile, a.x + t * a.blocks, t);
      });
    }
  }
}

// Blocks of a chunk: 16 KB of bytes for two tiles, a third of a first-level cache.
inline constexpr int64_t kChunkBlocks = 16;

// A chunk of G tiles as unsigned (or, without an offset, signed) bytes: quads of all their rows
// next to each other, scales as floats.
template <int G>
struct UnpackedTiles {
  static constexpr int kVectors = G * kVectorsPerLine;
  static constexpr int64_t kFloatsOfBlock = G * kLineLanes;

  HWY_ALIGN uint8_t quads[kChunkBlocks * kQuadsOfBlock * G * kLineBytes];
  HWY_ALIGN float scales[kChunkBlocks * kMaxParts * kFloatsOfBlock];  // part by part
  HWY_ALIGN float minimums[kChunkBlocks * kMaxParts * kFloatsOfBlock];

  // Blocks [first, first + count) of the G tiles from `tile` on.
  template <class Codes>
  HWY_INLINE void Unpack(const TileMatMulArgs& a, const uint8_t* tile, int64_t first,
                         int64_t count) {
    if constexpr (kIsStored<Codes>) {
      UnpackStored<Codes>(a, tile, first, count);
    } else {
      UnpackPlanes<Codes>(a, tile, first, count);
    }
  }

  template <class Codes>
  HWY_INLINE void MultiplyPanel(const BlockQ8* x, int64_t count, bool is_first, float* sums,
                                int64_t tokens) const;

 private:
  template <class Codes>
  HWY_INLINE void UnpackPlanes(const TileMatMulArgs& a, const uint8_t* tile, int64_t first,
                               int64_t count) {
    for (int g = 0; g < G; ++g, tile += a.tile_bytes) {
      for (int64_t b = 0; b < count; ++b) {
        const auto parts = TileParts<Codes>::Of(tile, first + b);
        FetchBlockAhead(parts, kUnpackPrefetchBytes);
        Unrolled<kQuadsOfBlock>([&]<int q>() HEARTH_INLINED {
          uint8_t* to = quads + ((b * kQuadsOfBlock + q) * G + g) * kLineBytes;
          for (int v = 0; v < kVectorsPerLine; ++v) {
            hn::Store(QuadOf<Codes, q>(parts.codes(), v), ByteTag(), to + v * kVectorBytes);
          }
        });
        Unrolled<kPartsOf<Codes>>([&]<int kPart>() HEARTH_INLINED {
          UnpackScales<Codes, kPart>(
              parts, (b * kPartsOf<Codes> + kPart) * kFloatsOfBlock + g * kLineLanes);
        });
      }
    }
  }

  template <class Codes>
  HWY_INLINE void UnpackStored(const TileMatMulArgs& a, const uint8_t* tile, int64_t first,
                               int64_t count) {
    static_assert(kChunkBlocks * 32 % kFormatOf<Codes>.stored_columns == 0, "whole groups");
    for (int g = 0; g < G; ++g, tile += a.tile_bytes) {
      ForStoredBlocks<Codes>(tile, first, count, [&](int64_t b, const StoredParts<Codes>& parts) {
        for (int q = 0; q < kQuadsOfBlock; ++q) {
          uint8_t* to = quads + ((b * kQuadsOfBlock + q) * G + g) * kLineBytes;
          for (int v = 0; v < kVectorsPerLine; ++v) {
            hn::Store(parts.Quad(q, v), ByteTag(), to + v * kVectorBytes);
          }
        }
        for (int part = 0; part < kPartsOf<Codes>; ++part) {
          float* to = scales + (b * kPartsOf<Codes> + part) * kFloatsOfBlock + g * kLineLanes;
          for (int v = 0; v < kVectorsPerLine; ++v) {
            hn::Store(parts.Scales(part, v), kFloats, to + v * kLanes);
          }
        }
      });
    }
  }

  // A part's scales and minimums become those from number `to` on.
  template <class Codes, int kPart>
  HWY_INLINE void UnpackScales(TileParts<Codes> parts, int64_t to) {
    for (int v = 0; v < kVectorsPerLine; ++v, to += kLanes) {
      hn::Store(ScalesOf<Codes, kPart>(parts, v), kFloats, scales + to);
      if constexpr (kHasMinimums<Codes>) {
        hn::Store(MinimumsOf<Codes, kPart>(parts, v), kFloats, minimums + to);
      }
    }
  }
};

// Adds the products of a part of a block, whose first quad is number kFirst, for T tokens to what
// their integer sums start from: quad by quad, each in all lanes.
struct BroadcastProducts {
  template <class Codes, int kFirst, int T, int V>
  static HWY_INLINE void Add(const uint8_t* quads, const BlockQ8* x, IntVec (&products)[T][V]) {
    typename Codes::Sums sums[T][V];
    for (int t = 0; t < T; ++t) {
      for (int v = 0; v < V; ++v) sums[t][v].Start(products[t][v]);
    }
    for (int q = kFirst; q < kFirst + kQuadsOfPart<Codes>; ++q, quads += V * kVectorBytes) {
      Bytes weights[V];
      for (int v = 0; v < V; ++v) weights[v] = hn::Load(ByteTag(), quads + v * kVectorBytes);
      for (int t = 0; t < T; ++t) {
        const Bytes quad = BroadcastQuad(x[t].codes + 4 * q);
        for (int v = 0; v < V; ++v) sums[t][v].Add(weights[v], quad);
      }
    }
    for (int t = 0; t < T; ++t) {
      for (int v = 0; v < V; ++v) products[t][v] = sums[t][v].Total();
    }
  }
};

// Adds part kPart of block b of a chunk for T tokens, whose blocks lie next to each other from `x`
// on.
template <class Codes, class Products, int kPart, int G, int T>
HWY_INLINE void AddPartOfChunk(const UnpackedTiles<G>& w, int64_t b, const BlockQ8* x,
                               FloatVec (&sums)[T][UnpackedTiles<G>::kVectors]) {
  constexpr int kVectors = UnpackedTiles<G>::kVectors;
  constexpr int kQuads = kQuadsOfPart<Codes>;
  const int64_t part = b * kPartsOf<Codes> + kPart;
  IntVec products[T][kVectors];
  for (int t = 0; t < T; ++t) {
    for (IntVec& product : products[t]) product = StartOfSums<Codes, kPart>(x[t]);
  }
  Products::template Add<Codes, kPart * kQuads>(w.quads + part * kQuads * kVectors * kVectorBytes,
                                                x, products);
  const float* scales = w.scales + part * UnpackedTiles<G>::kFloatsOfBlock;
  const float* minimums = w.minimums + part * UnpackedTiles<G>::kFloatsOfBlock;
  for (int t = 0; t < T; ++t) {
    const FloatVec x_scale = hn::Set(kFloats, x[t].scale);
    for (int v = 0; v < kVectors; ++v) {
      const FloatVec scale = hn::Mul(hn::Load(kFloats, scales + v * kLanes), x_scale);
      sums[t][v] = hn::MulAdd(hn::ConvertTo(kFloats, products[t][v]), scale, sums[t][v]);
      if constexpr (kHasMinimums<Codes>) {
        const FloatVec x_sum = hn::Set(kFloats, RealSum<Codes, kPart>(x[t]));
        sums[t][v] = hn::MulAdd(hn::Load(kFloats, minimums + v * kLanes), x_sum, sums[t][v]);
      }
    }
  }
}

// Adds a chunk's products for T tokens, whose blocks lie next to each other from `x` on, to the
// sums of these tokens, a row of kFloatsOfBlock each.
template <class Codes, class Products, int G, int T>
HWY_INLINE void AddChunk(const UnpackedTiles<G>& w, const BlockQ8* x, int64_t count, bool is_first,
                         float* sums_memory) {
  constexpr int kVectors = UnpackedTiles<G>::kVectors;
  FloatVec sums[T][kVectors];
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const float* from = sums_memory + t * UnpackedTiles<G>::kFloatsOfBlock + v * kLanes;
      sums[t][v] = is_first ? hn::Zero(kFloats) : hn::Load(kFloats, from);
    }
  }
  for (int64_t b = 0; b < count; ++b, x += T) {
    Unrolled<kPartsOf<Codes>>(
        [&]<int kPart>() HEARTH_INLINED { AddPartOfChunk<Codes, Products, kPart>(w, b, x, sums); });
  }
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums_memory + t * UnpackedTiles<G>::kFloatsOfBlock + v * kLanes;
      hn::Store(sums[t][v], kFloats, to);
    }
  }
}

// AddChunk for a panel of `tokens` <= T tokens.
template <class Codes, class Products, int G, int T>
HWY_INLINE void AddChunkToPanel(const UnpackedTiles<G>& w, const BlockQ8* x, int64_t count,
                                bool is_first, float* sums, int64_t tokens) {
  WithCount<T>(tokens, [&]<int N>() HEARTH_INLINED {
    AddChunk<Codes, Products, G, N>(w, x, count, is_first, sums);
  });
}

template <int G>
template <class Codes>
HWY_INLINE void UnpackedTiles<G>::MultiplyPanel(const BlockQ8* x, int64_t count, bool is_first,
                                                float* sums, int64_t tokens) const {
  AddChunkToPanel<Codes, BroadcastProducts, G, kPanelTokens>(*this, x, count, is_first, sums,
                                                             tokens);
}

// Tokens that go by while a chunk is unpacked: their sums stay in the first-level cache, their
// activations in the second-level one. A multiple of every panel's tokens.
inline constexpr int64_t kTokensAtOnce = 96;
static_assert(kTokensAtOnce % kPanelTokens == 0);

// Tokens [begin, end), at most kTokensAtOnce of them, times the G tiles from number `tile` on.
template <class Codes, template <int> class Chunk, int G>
void TilesTimesTokens(const TileMatMulArgs& a, int64_t tile, int64_t begin, int64_t end) {
  constexpr int64_t kWidth = G * kLineLanes;
  Chunk<G> chunk;
  HWY_ALIGN float sums[kTokensAtOnce * kWidth];
  const auto* weights =
      reinterpret_cast<const uint8_t*>(a.tiles) + static_cast<size_t>(tile) * a.tile_bytes;
  for (int64_t first = 0; first < a.blocks; first += kChunkBlocks) {
    const int64_t count = a.blocks - first < kChunkBlocks ? a.blocks - first : kChunkBlocks;
    chunk.template Unpack<Codes>(a, weights, first, count);
    for (int64_t t = begin; t < end; t += kPanelTokens) {
      const int64_t tokens = end - t < kPanelTokens ? end - t : kPanelTokens;
      chunk.template MultiplyPanel<Codes>(a.x + t * a.blocks + first * tokens, count, first == 0,
                                          sums + (t - begin) * kWidth, tokens);
    }
  }
  for (int64_t t = begin; t < end; ++t) {
    float* out = a.out + t * a.out_stride + (tile - a.tile_begin) * kLineLanes;
    for (int v = 0; v < G * kVectorsPerLine; ++v) {
      const FloatVec sum = hn::Load(kFloats, sums + (t - begin) * kWidth + v * kLanes);
      StoreRows(sum, out, v, a.rows - tile * kLineLanes);
    }
  }
}

// Products of any number of tokens with chunks of unpacked tiles.
template <class Codes, template <int> class Chunk>
HWY_INLINE void AllTilesTimesTokens(const TileMatMulArgs& a) {
  for (int64_t begin = 0; begin < a.tokens; begin += kTokensAtOnce) {
    const int64_t end = a.tokens - begin < kTokensAtOnce ? a.tokens : begin + kTokensAtOnce;
    int64_t tile = a.tile_begin;
    for (; tile + kTilesAtOnce <= a.tile_end; tile += kTilesAtOnce) {
      TilesTimesTokens<Codes, Chunk, kTilesAtOnce>(a, tile, begin, end);
    }
    for (; tile < a.tile_end; ++tile) TilesTimesTokens<Codes, Chunk, 1>(a, tile, begin, end);
  }
}

template <class Codes, template <int> class Chunk>
HWY_INLINE void MatMulPlaneTiles(const TileMatMulArgs& a) {
  if (a.tokens == 1) {
    if (a.side_by_side == 1) {
      AllTilesTimesToken<Codes, 1>(a);
    } else {
      AllTilesTimesToken<Codes, kTilesSideBySide>(a);
    }
    return;
  }
  if constexpr (kPanelsWithoutChunk > 0) {
    if (a.tokens <= kPanelsWithoutChunk * kPanelTokens) {
      TilesTimesFewTokens<Codes>(a);
      return;
    }
  }
  AllTilesTimesTokens<Codes, Chunk>(a);
}

template <class Codes, template <int> class Chunk>
void MatMulTiles(const TileMatMulArgs& a) noexcept {
  // Stored blocks must be unpacked for one token too, whose products are few beside that.
  if constexpr (kIsStored<Codes>) {
    AllTilesTimesTokens<Codes, Chunk>(a);
  } else {
    MatMulPlaneTiles<Codes, Chunk>(a);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
