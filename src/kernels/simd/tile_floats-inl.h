// Products of weight tiles with float activations: the weights of a tile as floats, and columns of
// such times tokens. Slower than int8 activations (matmul_tiles-inl.h) where several tokens share
// what is read, and exact but for the rounding of floats.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/matmul_tiles-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Codes of 8 bits that are multiplied as they are, signed, where the instruction set can; elsewhere
// they have an offset.
template <class Codes>
inline constexpr bool kHasSignedCodes = Codes::kOffset == 0 && (Codes::kDType == DType::kQ8_0 ||
                                                                Codes::kDType == DType::kIQ4_NL ||
                                                                Codes::kDType == DType::kIQ4_XS);

// The codes of column 4 * q + kColumn of the rows of a vector, from their quads, as floats.
template <class Codes, int kColumn>
HWY_INLINE FloatVec CodesOfColumn(Bytes quads) {
  const IntTag di;
  const IntVec lanes = hn::BitCast(di, quads);
  if constexpr (kHasSignedCodes<Codes>) {
    return hn::ConvertTo(kFloats, hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kColumn>(lanes)));
  }
  const IntVec code = hn::And(hn::ShiftRight<8 * kColumn>(lanes), hn::Set(di, 0xff));
  return hn::ConvertTo(kFloats, hn::Sub(code, hn::Set(di, Codes::kOffset)));
}

// Four columns of vector v of a tile's rows, from their quads.
template <class Codes>
HWY_INLINE void StoreColumns(Bytes quads, FloatVec scale, FloatVec minimum, int v, float* columns) {
  Unrolled<4>([&]<int c>() HEARTH_INLINED {
    FloatVec weights = hn::Mul(scale, CodesOfColumn<Codes, c>(quads));
    if constexpr (kHasMinimums<Codes>) weights = hn::Add(weights, minimum);
    hn::StoreU(weights, kFloats, columns + c * kLineLanes + v * kLanes);
  });
}

template <class Codes>
HWY_INLINE void PlaneTileFloats(const TileFloatsArgs& a) {
  const auto* tile = reinterpret_cast<const uint8_t*>(a.tile);
  for (int64_t b = 0; b < a.count; ++b) {
    const auto parts = TileParts<Codes>::Of(tile, a.first + b);
    FetchBlockAhead(parts, kUnpackPrefetchBytes);
    for (int v = 0; v < kVectorsPerLine; ++v) {
      Unrolled<kPartsOf<Codes>>([&]<int kPart>() HEARTH_INLINED {
        const FloatVec scale = ScalesOf<Codes, kPart>(parts, v);
        FloatVec minimum = hn::Zero(kFloats);
        if constexpr (kHasMinimums<Codes>) minimum = MinimumsOf<Codes, kPart>(parts, v);
        Unrolled<kQuadsOfPart<Codes>>([&]<int i>() HEARTH_INLINED {
          constexpr int q = kPart * kQuadsOfPart<Codes> + i;
          StoreColumns<Codes>(QuadOf<Codes, q>(parts.codes(), v), scale, minimum, v,
                              a.out + (b * kQuadsOfBlock + q) * 4 * kLineLanes);
        });
      });
    }
  }
}

template <class Codes>
HWY_INLINE void StoredTileFloats(const TileFloatsArgs& a) {
  const auto* tile = reinterpret_cast<const uint8_t*>(a.tile);
  ForStoredBlocks<Codes>(tile, a.first, a.count, [&](int64_t b, const StoredParts<Codes>& parts) {
    for (int q = 0; q < kQuadsOfBlock; ++q) {
      for (int v = 0; v < kVectorsPerLine; ++v) {
        StoreColumns<Codes>(parts.Quad(q, v), parts.Scales(q / kQuadsOfPart<Codes>, v),
                            hn::Zero(kFloats), v, a.out + (b * kQuadsOfBlock + q) * 4 * kLineLanes);
      }
    }
  });
}

template <class Codes>
void TileFloats(const TileFloatsArgs& a) noexcept {
  if constexpr (kIsStored<Codes>) {
    StoredTileFloats<Codes>(a);
  } else {
    PlaneTileFloats<Codes>(a);
  }
}

// Tokens whose sums are in registers together.
inline constexpr int kTokensOfColumns = kVectorRegisters >= 32 && kVectorsPerLine == 1 ? 4 : 1;

// Columns times T tokens. Four sums for each row and token, of every fourth column, so that no
// addition waits for the one before.
template <int T>
HWY_INLINE void ColumnsTimes(const ColumnsTimesTokensArgs& a, int64_t token) {
  constexpr int kSums = 4, kVectors = kVectorsPerLine;
  FloatVec sums[kSums][T][kVectors];
  Unrolled<kSums * T * kVectors>([&]<int i>() HEARTH_INLINED {
    sums[i / (T * kVectors)][i / kVectors % T][i % kVectors] = hn::Zero(kFloats);
  });
  const float* x = a.x + token * a.x_stride;
  for (int64_t c = 0; c < a.count; c += kSums) {
    Unrolled<kSums>([&]<int s>() HEARTH_INLINED {
      Unrolled<kVectors>([&]<int v>() HEARTH_INLINED {
        const FloatVec weights = hn::LoadU(kFloats, a.columns + (c + s) * kLineLanes + v * kLanes);
        Unrolled<T>([&]<int t>() HEARTH_INLINED {
          const FloatVec of_token = hn::Set(kFloats, x[t * a.x_stride + c + s]);
          sums[s][t][v] = hn::MulAdd(weights, of_token, sums[s][t][v]);
        });
      });
    });
  }
  Unrolled<T * kVectors>([&]<int i>() HEARTH_INLINED {
    constexpr int t = i / kVectors, v = i % kVectors;
    const FloatVec even = hn::Add(sums[0][t][v], sums[2][t][v]);
    const FloatVec odd = hn::Add(sums[1][t][v], sums[3][t][v]);
    float* out = a.out + (token + t) * kLineLanes + v * kLanes;
    hn::StoreU(hn::Add(hn::LoadU(kFloats, out), hn::Add(even, odd)), kFloats, out);
  });
}

inline void ColumnsTimesTokens(const ColumnsTimesTokensArgs& a) noexcept {
  int64_t t = 0;
  for (; t + kTokensOfColumns <= a.tokens; t += kTokensOfColumns) {
    ColumnsTimes<kTokensOfColumns>(a, t);
  }
  for (; t < a.tokens; ++t) ColumnsTimes<1>(a, t);
}

}  // namespace hearth::kernels::HEARTH_ISA
