// Several tokens times weight tiles with the matrix products of Armv8.6 (see matmul_tiles-inl.h
// for what a chunk has to do).
//
// An instruction multiplies two tokens' 8 columns with two rows' and adds the four sums to a
// vector: [token 0: row 0, row 1; token 1: row 0, row 1]. Float sums, scales and minimums take that
// shape too while a chunk lasts, so that nothing is rearranged within it.
#pragma once

#include <arm_neon.h>

#include "kernels/simd/matmul_tiles-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// `tokens` and `rows` are 2 x 8 signed bytes.
HWY_INLINE IntVec AddMatrixProduct(IntVec sums, Bytes tokens, Bytes rows) {
  return IntVec{
      vmmlaq_s32(sums.raw, vreinterpretq_s8_u8(tokens.raw), vreinterpretq_s8_u8(rows.raw))};
}

HWY_INLINE FloatVec LowHalves(FloatVec a, FloatVec b) {
  return hn::ConcatLowerLower(kFloats, b, a);
}
HWY_INLINE FloatVec HighHalves(FloatVec a, FloatVec b) {
  return hn::ConcatUpperUpper(kFloats, b, a);
}

// Rows whose sums stay in registers together, in pairs; a line's 16 rows are so many groups of
// them, and a vector of a line holds two pairs.
inline constexpr int kRowPairs = 4;
inline constexpr int kRowGroups = kLineLanes / (2 * kRowPairs);
inline constexpr int kVectorsOfGroup = kRowPairs / 2;
inline constexpr int kSteps = kQuadsOfBlock / 2;  // of 8 columns
inline constexpr int kTokenPairs = kMostSums / kRowPairs;

// A block's weights of a group of rows, in the order of their use.
struct RowPairsBlock {
  HWY_ALIGN uint8_t codes[kSteps][kRowPairs][kVectorBytes];  // signed: 8 columns of two rows
  HWY_ALIGN float scales[kMaxParts][kRowPairs][kLanes];      // of rows 0, 1, 0, 1
};
struct RowPairsMinimums {
  HWY_ALIGN float minimums[kMaxParts][kRowPairs][kLanes];  // likewise
};

// Writes the four rows of v as two pairs.
HWY_INLINE void StorePairs(FloatVec v, float (*to)[kLanes]) {
  hn::Store(LowHalves(v, v), kFloats, to[0]);
  hn::Store(HighHalves(v, v), kFloats, to[1]);
}

// The tokens of a panel's pairs. Where the last pair is one token, it takes part as both.
template <int P>
struct PanelTokens {
  int64_t last;
  HWY_INLINE int64_t operator[](int i) const { return i == 2 * P - 1 ? last : i; }
};

// The sums of a group of rows and P pairs of tokens.
template <int P>
struct PairSums {
  FloatVec sums[P][kRowPairs];

  HWY_INLINE void Clear() {
    for (auto& of_tokens : sums) {
      for (FloatVec& sum : of_tokens) sum = hn::Zero(kFloats);
    }
  }
  HWY_INLINE void Load(const float* from, PanelTokens<P> tokens) {
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kVectorsOfGroup; ++v) {
        const float* rows = from + v * kLanes;
        const FloatVec a = hn::Load(kFloats, rows + tokens[2 * p] * kLineLanes);
        const FloatVec b = hn::Load(kFloats, rows + tokens[2 * p + 1] * kLineLanes);
        sums[p][2 * v] = LowHalves(a, b);
        sums[p][2 * v + 1] = HighHalves(a, b);
      }
    }
  }
  HWY_INLINE void Store(float* to, PanelTokens<P> tokens) const {
    for (int p = 0; p < P; ++p) {
      for (int v = 0; v < kVectorsOfGroup; ++v) {
        const FloatVec a = sums[p][2 * v];
        const FloatVec b = sums[p][2 * v + 1];
        float* rows = to + v * kLanes;
        hn::Store(LowHalves(a, b), kFloats, rows + tokens[2 * p] * kLineLanes);
        hn::Store(HighHalves(a, b), kFloats, rows + tokens[2 * p + 1] * kLineLanes);
      }
    }
  }
};

// [a, a, b, b]
HWY_INLINE FloatVec PairOf(float a, float b) {
  return FloatVec{vcombine_f32(vdup_n_f32(a), vdup_n_f32(b))};
}

// P pairs of tokens for a block.
template <int P>
struct TokenPairsBlock {
  HWY_ALIGN uint8_t codes[kSteps][P][kVectorBytes];  // 8 columns of two tokens
  HWY_ALIGN float scales[P][kLanes];                 // of tokens 0, 0, 1, 1
  HWY_ALIGN float sums[kMaxParts][P][kLanes];        // RealSum, likewise; for minimums

  template <class Codes>
  HWY_INLINE void Pack(const BlockQ8* x, PanelTokens<P> tokens) {
    for (int p = 0; p < P; ++p) {
      const BlockQ8& x0 = x[tokens[2 * p]];
      const BlockQ8& x1 = x[tokens[2 * p + 1]];
      for (int step = 0; step < kSteps; step += 2) {
        const Bytes a = LoadBytes(x0.codes + 8 * step);
        const Bytes b = LoadBytes(x1.codes + 8 * step);
        hn::Store(hn::ConcatLowerLower(ByteTag(), b, a), ByteTag(), codes[step][p]);
        hn::Store(hn::ConcatUpperUpper(ByteTag(), b, a), ByteTag(), codes[step + 1][p]);
      }
      hn::Store(PairOf(x0.scale, x1.scale), kFloats, scales[p]);
      if constexpr (kHasMinimums<Codes>) {
        Unrolled<kPartsOf<Codes>>([&]<int kPart>() HEARTH_INLINED {
          const float real0 = RealSum<Codes, kPart>(x0);
          hn::Store(PairOf(real0, RealSum<Codes, kPart>(x1)), kFloats, sums[kPart][p]);
        });
      }
    }
  }
};

// The exact sums of part kPart of a block.
template <class Codes, int kPart, int P>
HWY_INLINE void MultiplyPart(const RowPairsBlock& w, const TokenPairsBlock<P>& x,
                             IntVec (&products)[P][kRowPairs]) {
  constexpr int kStepsOfPart = kSteps / kPartsOf<Codes>;
  for (auto& of_tokens : products) {
    for (IntVec& product : of_tokens) product = hn::Zero(IntTag());
  }
  for (int step = kPart * kStepsOfPart; step < (kPart + 1) * kStepsOfPart; ++step) {
    Bytes tokens[P];
    for (int p = 0; p < P; ++p) tokens[p] = hn::Load(ByteTag(), x.codes[step][p]);
    Bytes rows[kRowPairs];
    for (int r = 0; r < kRowPairs; ++r) rows[r] = hn::Load(ByteTag(), w.codes[step][r]);
    for (int p = 0; p < P; ++p) {
      for (int r = 0; r < kRowPairs; ++r) {
        products[p][r] = AddMatrixProduct(products[p][r], tokens[p], rows[r]);
      }
    }
  }
}

// A chunk of one tile. (More would only share the loads of activations.)
template <int G>
struct RowPairTiles {
  static_assert(G == 1);
  RowPairsBlock blocks[kRowGroups][kChunkBlocks];
  RowPairsMinimums minimums[kRowGroups][kChunkBlocks];

  template <class Codes>
  HWY_INLINE void Unpack(const TileMatMulArgs&, const uint8_t* tile, int64_t first, int64_t count) {
    if constexpr (kIsStored<Codes>) {
      UnpackStored<Codes>(tile, first, count);
    } else {
      UnpackPlanes<Codes>(tile, first, count);
    }
  }

  template <class Codes>
  HWY_INLINE void MultiplyPanel(const ChunkPanel& panel, float* sums) const {
    constexpr int64_t kTokens = 2 * kTokenPairs;
    for (int64_t t = 0; t < panel.tokens; t += kTokens) {
      const int64_t tokens = panel.tokens - t < kTokens ? panel.tokens - t : kTokens;
      MultiplyPairs<Codes, kTokenPairs>(panel, t, tokens, sums + t * kLineLanes);
    }
  }

 private:
  template <class Codes>
  HWY_INLINE void UnpackPlanes(const uint8_t* tile, int64_t first, int64_t count) {
    for (int64_t b = 0; b < count; ++b) {
      const auto parts = TileParts<Codes>::Of(tile, first + b);
      for (int v = 0; v < kVectorsPerLine; ++v) {
        const int group = v / kVectorsOfGroup;
        const int pair = v % kVectorsOfGroup * 2;
        UnpackCodes<Codes>(parts.codes(), v, blocks[group][b], pair);
        Unrolled<kPartsOf<Codes>>([&]<int kPart>() HEARTH_INLINED {
          StorePairs(ScalesOf<Codes, kPart>(parts, v), blocks[group][b].scales[kPart] + pair);
          if constexpr (kHasMinimums<Codes>) {
            StorePairs(MinimumsOf<Codes, kPart>(parts, v),
                       minimums[group][b].minimums[kPart] + pair);
          }
        });
      }
    }
  }

  template <class Codes>
  HWY_INLINE void UnpackStored(const uint8_t* tile, int64_t first, int64_t count) {
    ForStoredBlocks<Codes>(tile, first, count, [&](int64_t b, const StoredParts<Codes>& parts) {
      for (int v = 0; v < kVectorsPerLine; ++v) {
        RowPairsBlock& to = blocks[v / kVectorsOfGroup][b];
        const int pair = v % kVectorsOfGroup * 2;
        for (int step = 0; step < kSteps; ++step) {
          StoreStep<Codes>(parts.Quad(2 * step, v), parts.Quad(2 * step + 1, v), step, to, pair);
        }
        for (int part = 0; part < kPartsOf<Codes>; ++part) {
          StorePairs(parts.Scales(part, v), to.scales[part] + pair);
        }
      }
    });
  }

  // Vector v of a block's lines, as two pairs of rows.
  template <class Codes>
  static HWY_INLINE void UnpackCodes(const uint8_t* from, int v, RowPairsBlock& to, int pair) {
    Unrolled<kSteps>([&]<int step>() HEARTH_INLINED {
      StoreStep<Codes>(QuadOf<Codes, 2 * step>(from, v), QuadOf<Codes, 2 * step + 1>(from, v), step,
                       to, pair);
    });
  }

  // Two quads of four rows as 8 columns of two pairs.
  template <class Codes>
  static HWY_INLINE void StoreStep(Bytes left, Bytes right, int step, RowPairsBlock& to, int pair) {
    const Bytes offset = hn::Set(ByteTag(), uint8_t{Codes::kOffset});
    const IntVec a = hn::BitCast(IntTag(), hn::Sub(left, offset));
    const IntVec b = hn::BitCast(IntTag(), hn::Sub(right, offset));
    hn::Store(hn::BitCast(ByteTag(), hn::InterleaveLower(IntTag(), a, b)), ByteTag(),
              to.codes[step][pair]);
    hn::Store(hn::BitCast(ByteTag(), hn::InterleaveUpper(IntTag(), a, b)), ByteTag(),
              to.codes[step][pair + 1]);
  }

  // For `tokens` tokens of a panel, at most P pairs, from number `first` on.
  template <class Codes, int P>
  HWY_INLINE void MultiplyPairs(const ChunkPanel& panel, int64_t first, int64_t tokens,
                                float* sums) const {
    if constexpr (P > 1) {
      if (tokens <= 2 * (P - 1)) {
        MultiplyPairs<Codes, P - 1>(panel, first, tokens, sums);
        return;
      }
    }
    const PanelTokens<P> indices{tokens - 1};
    TokenPairsBlock<P> packed[kChunkBlocks];
    for (int64_t b = 0; b < panel.count; ++b) {
      packed[b].template Pack<Codes>(panel.x + b * panel.tokens + first, indices);
    }
    for (int group = 0; group < kRowGroups; ++group) {
      PairSums<P> s;
      float* of_group = sums + group * 2 * kRowPairs;
      if (panel.is_first) {
        s.Clear();
      } else {
        s.Load(of_group, indices);
      }
      for (int64_t b = 0; b < panel.count; ++b) {
        Unrolled<kPartsOf<Codes>>(
            [&]<int kPart>() HEARTH_INLINED { AddPart<Codes, kPart>(group, b, packed[b], s); });
      }
      s.Store(of_group, indices);
    }
  }

  template <class Codes, int kPart, int P>
  HWY_INLINE void AddPart(int group, int64_t b, const TokenPairsBlock<P>& x, PairSums<P>& s) const {
    const RowPairsBlock& w = blocks[group][b];
    IntVec products[P][kRowPairs];
    MultiplyPart<Codes, kPart>(w, x, products);
    for (int p = 0; p < P; ++p) {
      const FloatVec x_scale = hn::Load(kFloats, x.scales[p]);
      for (int r = 0; r < kRowPairs; ++r) {
        FloatVec& sum = s.sums[p][r];
        const FloatVec scale = hn::Mul(hn::Load(kFloats, w.scales[kPart][r]), x_scale);
        sum = hn::MulAdd(hn::ConvertTo(kFloats, products[p][r]), scale, sum);
        if constexpr (kHasMinimums<Codes>) {
          const FloatVec minimum = hn::Load(kFloats, minimums[group][b].minimums[kPart][r]);
          sum = hn::MulAdd(minimum, hn::Load(kFloats, x.sums[kPart][p]), sum);
        }
      }
    }
  }
};

}  // namespace hearth::kernels::HEARTH_ISA
