// Products of weight tiles (Q4_0, Q4_1, Q8_0) with int8 activations.
//
// A lane is a row. A block of 32 columns gives one exact integer per row and token, made of eight
// byte products; it is scaled by the row's and the token's scale and added to a float. One token
// (decode), or a few (sequences decoded together), read the tiles as they lie. Many (prefill) first
// unpack some blocks of a few tiles into bytes, which stay in the first-level cache while many
// tokens go by; the float sums of a row and token pause in memory between such chunks, so that
// their order of addition is that of one token alone. (Not in `out`: the distance between its
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
#include "kernels/simd/quads-inl.h"
#include "kernels/simd/tile_parts-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// A weight type. Codes in a tile stand for more by an offset than what they are multiplied as
// (kernel_table.h, BlockQ8); integer sums start from what that makes too much.
struct Q4_0Tiles {
  using Sums = NibbleSums;
  static constexpr int kLines = 4;
  static constexpr int32_t kOffset = kOffsetQ4_0;
  static constexpr bool kHasMinimum = false;
  static HWY_INLINE int32_t Start(const BlockQ8& x) { return x.minus_8_sum; }
};

struct Q4_1Tiles {
  using Sums = NibbleSums;
  static constexpr int kLines = 4;
  static constexpr int32_t kOffset = 0;
  static constexpr bool kHasMinimum = true;
  static HWY_INLINE int32_t Start(const BlockQ8&) { return 0; }
};

struct Q8_0Tiles {
  using Sums = WideSums<DotQ8_0>;
  static constexpr int kLines = 8;
  static constexpr int32_t kOffset = kOffsetQ8_0;
  static constexpr bool kHasMinimum = false;
  static HWY_INLINE int32_t Start(const BlockQ8& x) { return x.minus_8_sum * (kOffsetQ8_0 / 8); }
};

// What a minimum is multiplied with: the sum of the token's activations in real units.
HWY_INLINE float RealSum(const BlockQ8& x) {
  return x.scale * (-0.125f * static_cast<float>(x.minus_8_sum));
}

// Vector v of quad q of a block whose codes begin at `block`.
template <class Codes>
HWY_INLINE Bytes QuadOf(const uint8_t* block, int q, int v) {
  if constexpr (Codes::kLines == 4) {
    const Bytes both = LoadBytes(block + (q / 2) * kLineBytes + v * kVectorBytes);
    return q % 2 == 0 ? LowNibbles(both) : HighNibbles(both);
  } else {
    return PrepareQ8_0(LoadBytes(block + q * kLineBytes + v * kVectorBytes));
  }
}

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

// Adds a block. Asks for its half of the pair that begins at `ahead`, which may lie past the
// weights, where that does nothing.
template <class Codes, int kWhich>
HWY_INLINE void AddBlockOfToken(const uint8_t* pair, const BlockQ8& x, uintptr_t ahead,
                                TokenSums& sums) {
  constexpr int kVectors = kVectorsPerLine;
  const TileParts<Codes> parts = {pair, kWhich};
  constexpr int64_t kHalf = (parts.kPairBytes / kLineBytes / 2) * kLineBytes;
  for (int64_t at = kWhich * kHalf; at < (kWhich == 0 ? kHalf : parts.kPairBytes);
       at += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + static_cast<uintptr_t>(at)));
  }
  typename Codes::Sums products[kVectors];
  for (auto& product : products) product.Start(hn::Set(IntTag(), Codes::Start(x)));
  for (int q = 0; q < kQuadsOfBlock; ++q) {
    const Bytes quad = BroadcastQuad(x.codes + 4 * q);
    for (int v = 0; v < kVectors; ++v) {
      products[v].Add(QuadOf<Codes>(parts.codes(), q, v), quad);
    }
  }
  const FloatVec x_scale = hn::Set(kFloats, x.scale);
  for (int v = 0; v < kVectors; ++v) {
    FloatVec& sum = sums.of_vector[v];
    const FloatVec scale = hn::Mul(LoadHalves(parts.scales() + 2 * v * kLanes), x_scale);
    sum = hn::MulAdd(hn::ConvertTo(kFloats, products[v].Total()), scale, sum);
    if constexpr (Codes::kHasMinimum) {
      const FloatVec x_sum = hn::Set(kFloats, RealSum(x));
      sum = hn::MulAdd(LoadHalves(parts.minimums() + 2 * v * kLanes), x_sum, sum);
    }
  }
}

// One token times G tiles, read side by side as so many streams.
template <class Codes, int G>
HWY_INLINE void TilesTimesToken(const TileMatMulArgs& a, int64_t first_tile) {
  const uint8_t* pair =
      reinterpret_cast<const uint8_t*>(a.tiles) + static_cast<size_t>(first_tile) * a.tile_bytes;
  TokenSums sums[G];
  for (TokenSums& of_tile : sums) {
    for (FloatVec& sum : of_tile.of_vector) sum = hn::Zero(kFloats);
  }
  const auto add_block = [&]<int kWhich>(const BlockQ8& x) HEARTH_INLINED {
    for (int g = 0; g < G; ++g) {
      const uint8_t* of_tile = pair + static_cast<size_t>(g) * a.tile_bytes;
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(of_tile) + kTilePrefetchBytes<G>;
      AddBlockOfToken<Codes, kWhich>(of_tile, x, ahead, sums[g]);
    }
  };
  int64_t b = 0;
  for (; b + 2 <= a.blocks; b += 2, pair += TileParts<Codes>::kPairBytes) {
    add_block.template operator()<0>(a.x[b]);
    add_block.template operator()<1>(a.x[b + 1]);
  }
  if (b < a.blocks) add_block.template operator()<0>(a.x[b]);
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

// A block's lines and one of scales. The address may lie past the weights, where this does nothing.
template <class Codes>
HWY_INLINE void PrefetchBlock(uintptr_t address) {
  for (int line = 0; line <= Codes::kLines; ++line) {
    FetchAhead(reinterpret_cast<const void*>(address + line * kLineBytes));
  }
}

// Up to so many panels of tokens are multiplied with the quads as they come out of the tile, once
// for each panel: storing them as bytes and loading them again takes longer. That is with 32
// vectors of 512 bits; elsewhere the sums of a panel do not stay in registers beside all else.
inline constexpr int64_t kPanelsWithoutChunk = kLanes == 16 ? 4 : 0;

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
    PrefetchBlock<Codes>(reinterpret_cast<uintptr_t>(parts.codes()) + kUnpackPrefetchBytes);
    typename Codes::Sums products[T][kVectors];
    Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
      products[i / kVectors][i % kVectors].Start(hn::Set(IntTag(), Codes::Start(x[i / kVectors])));
    });
    Unrolled<kQuadsOfBlock * kVectors>([&]<int i>() HEARTH_INLINED {
      constexpr int q = i / kVectors, v = i % kVectors;
      const Bytes quads = QuadOf<Codes>(parts.codes(), q, v);
      Unrolled<T>([&]<int t>() HEARTH_INLINED {
        products[t][v].Add(quads, BroadcastQuad(x[t].codes + 4 * q));
      });
    });
    Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
      constexpr int t = i / kVectors, v = i % kVectors;
      const FloatVec x_scale = hn::Set(kFloats, x[t].scale);
      const FloatVec scale = hn::Mul(LoadHalves(parts.scales() + 2 * v * kLanes), x_scale);
      const FloatVec product = hn::ConvertTo(kFloats, products[t][v].Total());
      sums[t][v] = hn::MulAdd(product, scale, sums[t][v]);
      if constexpr (Codes::kHasMinimum) {
        const FloatVec x_sum = hn::Set(kFloats, RealSum(x[t]));
        sums[t][v] = hn::MulAdd(LoadHalves(parts.minimums() + 2 * v * kLanes), x_sum, sums[t][v]);
      }
    });
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
  HWY_ALIGN float scales[kChunkBlocks * kFloatsOfBlock];
  HWY_ALIGN float minimums[kChunkBlocks * kFloatsOfBlock];

  // Blocks [first, first + count) of the G tiles from `tile` on.
  template <class Codes>
  HWY_INLINE void Unpack(const TileMatMulArgs& a, const uint8_t* tile, int64_t first,
                         int64_t count) {
    for (int g = 0; g < G; ++g, tile += a.tile_bytes) {
      for (int64_t b = 0; b < count; ++b) {
        const auto parts = TileParts<Codes>::Of(tile, first + b);
        PrefetchBlock<Codes>(reinterpret_cast<uintptr_t>(parts.codes()) + kUnpackPrefetchBytes);
        for (int q = 0; q < kQuadsOfBlock; ++q) {
          uint8_t* to = quads + ((b * kQuadsOfBlock + q) * G + g) * kLineBytes;
          for (int v = 0; v < kVectorsPerLine; ++v) {
            hn::Store(QuadOf<Codes>(parts.codes(), q, v), ByteTag(), to + v * kVectorBytes);
          }
        }
        UnpackHalves(parts.scales(), b, g, scales);
        if constexpr (Codes::kHasMinimum) UnpackHalves(parts.minimums(), b, g, minimums);
      }
    }
  }

  template <class Codes>
  HWY_INLINE void MultiplyPanel(const BlockQ8* x, int64_t count, bool is_first, float* sums,
                                int64_t tokens) const;

 private:
  // A block's numbers of tile g.
  static HWY_INLINE void UnpackHalves(const uint8_t* halves, int64_t b, int g, float* to) {
    for (int v = 0; v < kVectorsPerLine; ++v) {
      hn::Store(LoadHalves(halves + 2 * v * kLanes), kFloats,
                to + b * kFloatsOfBlock + g * kLineLanes + v * kLanes);
    }
  }
};

// Adds a block's products for T tokens to what their integer sums start from: quad by quad, each in
// all lanes.
struct BroadcastProducts {
  template <class Codes, int T, int V>
  static HWY_INLINE void Add(const uint8_t* quads, const BlockQ8* x, IntVec (&products)[T][V]) {
    typename Codes::Sums sums[T][V];
    for (int t = 0; t < T; ++t) {
      for (int v = 0; v < V; ++v) sums[t][v].Start(products[t][v]);
    }
    for (int q = 0; q < kQuadsOfBlock; ++q, quads += V * kVectorBytes) {
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
  const uint8_t* quads = w.quads;
  for (int64_t b = 0; b < count; ++b, x += T) {
    IntVec products[T][kVectors];
    for (int t = 0; t < T; ++t) {
      for (IntVec& product : products[t]) product = hn::Set(IntTag(), Codes::Start(x[t]));
    }
    Products::template Add<Codes>(quads, x, products);
    quads += kQuadsOfBlock * kVectors * kVectorBytes;
    const float* scales = w.scales + b * UnpackedTiles<G>::kFloatsOfBlock;
    const float* minimums = w.minimums + b * UnpackedTiles<G>::kFloatsOfBlock;
    for (int t = 0; t < T; ++t) {
      const FloatVec x_scale = hn::Set(kFloats, x[t].scale);
      for (int v = 0; v < kVectors; ++v) {
        const FloatVec scale = hn::Mul(hn::Load(kFloats, scales + v * kLanes), x_scale);
        sums[t][v] = hn::MulAdd(hn::ConvertTo(kFloats, products[t][v]), scale, sums[t][v]);
        if constexpr (Codes::kHasMinimum) {
          const FloatVec x_sum = hn::Set(kFloats, RealSum(x[t]));
          sums[t][v] = hn::MulAdd(hn::Load(kFloats, minimums + v * kLanes), x_sum, sums[t][v]);
        }
      }
    }
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

template <class Codes, template <int> class Chunk>
void MatMulTiles(const TileMatMulArgs& a) noexcept {
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
  for (int64_t begin = 0; begin < a.tokens; begin += kTokensAtOnce) {
    const int64_t end = a.tokens - begin < kTokensAtOnce ? a.tokens : begin + kTokensAtOnce;
    int64_t tile = a.tile_begin;
    for (; tile + kTilesAtOnce <= a.tile_end; tile += kTilesAtOnce) {
      TilesTimesTokens<Codes, Chunk, kTilesAtOnce>(a, tile, begin, end);
    }
    for (; tile < a.tile_end; ++tile) TilesTimesTokens<Codes, Chunk, 1>(a, tile, begin, end);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
