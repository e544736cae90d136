// Products of chunks of weight tiles, which are unpacked to bytes first, with panels of tokens.
//
// How a chunk is unpacked and multiplied is a class, UnpackedTiles here. An instruction set that
// multiplies matrices brings its own and names it in MakeTable (table-inl.h):
//   template <int G> struct Chunk   of G tiles, at most kChunkBlocks blocks; on the stack
//     template <class Codes> void Unpack(const TileMatMulArgs&, const uint8_t* tile,
//                                        int64_t first, int64_t count)
//     template <class Codes> void MultiplyPanel(const ChunkPanel&, float* sums) const
// MultiplyPanel adds the products of a chunk's blocks with a panel of tokens to `sums`, a row of
// 16 * G per token; they are not yet written where is_first. Every sum must come about as in
// TilesTimesToken: exact integers, then the same operations on floats.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/stored_tiles-inl.h"
#include "kernels/simd/tile_types-inl.h"
#include "kernels/simd/token_steps-inl.h"

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

// How far ahead of its use a tile is asked for: about a chunk, as below.
inline constexpr uintptr_t kUnpackPrefetchBytes = 4096;

inline constexpr int64_t kChunkBlocks = kBlocksOfChunk;

// Tokens of a panel: block b of token i, of the `count` blocks of a chunk, is x[b * tokens + i].
struct ChunkPanel {
  const BlockQ8* x;
  int64_t tokens;
  int64_t count;
  bool is_first;   // the chunk's blocks are the first of their rows
  int32_t offset;  // Codes::kOffset
};

// All that matters of a weight type once it is unpacked, so that types share the products.
template <class SumsOfType, int parts, bool has_minimums>
struct UnpackedCodes {
  using Sums = SumsOfType;
};
template <class Sums, int parts, bool has_minimums>
inline constexpr int kPartsOf<UnpackedCodes<Sums, parts, has_minimums>> = parts;
template <class Sums, int parts, bool has_minimums>
inline constexpr bool kHasMinimums<UnpackedCodes<Sums, parts, has_minimums>> = has_minimums;
template <class Codes>
using UnpackedOf = UnpackedCodes<typename Codes::Sums, kPartsOf<Codes>, kHasMinimums<Codes>>;

// Tokens that G tiles are multiplied with at once, at most.
template <int G>
inline constexpr int kMostTokensOfChunk =
    kMostTokens<G> < kTokensTimesChunk ? kMostTokens<G> : kTokensTimesChunk;

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
  HWY_INLINE void MultiplyPanel(const ChunkPanel& panel, float* sums) const;

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
    Unrolled<T * V>([&]<int i>()
                        HEARTH_INLINED { sums[i / V][i % V].Start(products[i / V][i % V]); });
    Unrolled<kQuadsOfPart<Codes>>([&]<int q>() HEARTH_INLINED {
      Bytes weights[V];
      Unrolled<V>([&]<int v>() HEARTH_INLINED {
        weights[v] = hn::Load(ByteTag(), quads + (q * V + v) * kVectorBytes);
      });
      Unrolled<T>([&]<int t>() HEARTH_INLINED {
        const Bytes quad = BroadcastQuad(x[t].codes + 4 * (kFirst + q));
        Unrolled<V>([&]<int v>() HEARTH_INLINED { sums[t][v].Add(weights[v], quad); });
      });
    });
    Unrolled<T * V>([&]<int i>()
                        HEARTH_INLINED { products[i / V][i % V] = sums[i / V][i % V].Total(); });
  }
};

// Adds part kPart of block b of a chunk for T tokens, whose blocks lie next to each other from `x`
// on.
template <class Codes, class Products, int kPart, int G, int T>
HWY_INLINE void AddPartOfChunk(const UnpackedTiles<G>& w, int64_t b, const BlockQ8* x,
                               int32_t offset, FloatVec (&sums)[T][UnpackedTiles<G>::kVectors]) {
  constexpr int kVectors = UnpackedTiles<G>::kVectors;
  constexpr int kQuads = kQuadsOfPart<Codes>;
  const int64_t part = b * kPartsOf<Codes> + kPart;
  IntVec products[T][kVectors];
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    // Types with minimums have no offset.
    const int32_t too_much =
        kHasMinimums<Codes> ? 0 : Minus8Sum<Codes, kPart>(x[i / kVectors]) * offset / 8;
    products[i / kVectors][i % kVectors] = hn::Set(IntTag(), too_much);
  });
  Products::template Add<Codes, kPart * kQuads>(w.quads + part * kQuads * kVectors * kVectorBytes,
                                                x, products);
  const float* scales = w.scales + part * UnpackedTiles<G>::kFloatsOfBlock;
  const float* minimums = w.minimums + part * UnpackedTiles<G>::kFloatsOfBlock;
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    constexpr int t = i / kVectors, v = i % kVectors;
    const FloatVec x_scale = hn::Set(kFloats, x[t].scale);
    const FloatVec scale = hn::Mul(hn::Load(kFloats, scales + v * kLanes), x_scale);
    sums[t][v] = hn::MulAdd(hn::ConvertTo(kFloats, products[t][v]), scale, sums[t][v]);
    if constexpr (kHasMinimums<Codes>) {
      const FloatVec x_sum = hn::Set(kFloats, RealSum<Codes, kPart>(x[t]));
      sums[t][v] = hn::MulAdd(hn::Load(kFloats, minimums + v * kLanes), x_sum, sums[t][v]);
    }
  });
}

// Adds a chunk's products for T tokens of a panel, from number `first` on, to their sums.
template <class Codes, class Products, int G, int T>
HWY_NOINLINE void AddChunk(const UnpackedTiles<G>& w, const ChunkPanel& panel, int64_t first,
                           float* sums_memory) {
  constexpr int kVectors = UnpackedTiles<G>::kVectors;
  sums_memory += first * UnpackedTiles<G>::kFloatsOfBlock;
  const BlockQ8* x = panel.x + first;
  FloatVec sums[T][kVectors];
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    sums[i / kVectors][i % kVectors] =
        panel.is_first ? hn::Zero(kFloats) : hn::Load(kFloats, sums_memory + i * kLanes);
  });
  for (int64_t b = 0; b < panel.count; ++b, x += panel.tokens) {
    Unrolled<kPartsOf<Codes>>([&]<int kPart>() HEARTH_INLINED {
      AddPartOfChunk<Codes, Products, kPart>(w, b, x, panel.offset, sums);
    });
  }
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    hn::Store(sums[i / kVectors][i % kVectors], kFloats, sums_memory + i * kLanes);
  });
}

// AddChunk for all tokens of a panel.
template <class Codes, class Products, int G>
HWY_INLINE void AddChunkToPanel(const UnpackedTiles<G>& w, const ChunkPanel& panel, float* sums) {
  ForTokenSteps<kMostTokensOfChunk<G>>(panel.tokens, [&]<int T>(int64_t first) HEARTH_INLINED {
    AddChunk<UnpackedOf<Codes>, Products, G, T>(w, panel, first, sums);
  });
}

template <int G>
template <class Codes>
HWY_INLINE void UnpackedTiles<G>::MultiplyPanel(const ChunkPanel& panel, float* sums) const {
  AddChunkToPanel<Codes, BroadcastProducts>(*this, panel, sums);
}

// Tokens [begin, end), at most kTokensOfChunk of them, times the G tiles from number `tile` on.
template <class Codes, template <int> class Chunk, int G>
void TilesTimesTokens(const TileMatMulArgs& a, int64_t tile, int64_t begin, int64_t end) {
  constexpr int64_t kWidth = G * kLineLanes;
  Chunk<G> chunk;
  HWY_ALIGN float sums[kTokensOfChunk * kWidth];
  const auto* weights =
      reinterpret_cast<const uint8_t*>(a.tiles) + static_cast<size_t>(tile) * a.tile_bytes;
  const int64_t panel_tokens = a.geometry.panel_tokens;
  for (int64_t first = 0; first < a.blocks; first += kChunkBlocks) {
    const int64_t rest = a.blocks - first;
    const int64_t count = rest < kChunkBlocks ? rest : kChunkBlocks;
    chunk.template Unpack<Codes>(a, weights, first, count);
    for (int64_t t = begin; t < end; t += panel_tokens) {
      const int64_t tokens = end - t < panel_tokens ? end - t : panel_tokens;
      const BlockQ8* x = a.x + t * a.blocks + first * tokens;
      static_assert(!kHasMinimums<Codes> || Codes::kOffset == 0);
      chunk.template MultiplyPanel<Codes>({x, tokens, count, first == 0, Codes::kOffset},
                                          sums + (t - begin) * kWidth);
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

// Tokens [begin, end) times all tiles, G at once and then one by one.
template <class Codes, template <int> class Chunk, int G>
HWY_INLINE void AllTilesTimesTokens(const TileMatMulArgs& a, int64_t begin, int64_t end) {
  int64_t tile = a.tile_begin;
  for (; tile + G <= a.tile_end; tile += G) TilesTimesTokens<Codes, Chunk, G>(a, tile, begin, end);
  for (; tile < a.tile_end; ++tile) TilesTimesTokens<Codes, Chunk, 1>(a, tile, begin, end);
}

// Products of any number of tokens with chunks of unpacked tiles.
template <class Codes, template <int> class Chunk>
HWY_INLINE void AllChunksTimesTokens(const TileMatMulArgs& a) {
  const int64_t at_once = kTokensOfChunk / a.geometry.panel_tokens * a.geometry.panel_tokens;
  for (int64_t begin = 0; begin < a.tokens; begin += at_once) {
    const int64_t end = a.tokens - begin < at_once ? a.tokens : begin + at_once;
    WithTiles<kMostTilesOfChunk>(a.geometry.tiles, [&]<int G>() HEARTH_INLINED {
      AllTilesTimesTokens<Codes, Chunk, G>(a, begin, end);
    });
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
