// Bundle rows for many tokens at once (prefill): tiles of rows, a row times listed tokens, and rows
// added to the sums of the tokens that fire them. A row is unpacked once for all its tokens.
//
// Results are the bits of rows-inl.h: the same operations on the same lanes in the same order.
#pragma once

#include "kernels/rows-inl.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels::HEARTH_ISA {

// --- Tiles of rows.

// A line of four rows, lane b of each belonging to block b, as lanes r..r+3 of the tile's lines of
// those blocks; `to` is that of the first block, for row r.
HWY_INLINE void PlaceQuadOfRows(const uint8_t* const (&lines)[4], int64_t lane, int64_t n,
                                size_t to_next_block, uint8_t* to) {
  FloatVec v[4];
  for (int r = 0; r < 4; ++r) {
    v[r] = hn::BitCast(kFloats, LoadQuads<false>(lines[r] + kRowLaneBytes * lane, n));
  }
  TransposeQuads(v);
  for (int i = 0; i < 4; ++i) {
    HWY_ALIGN uint8_t quads[kVectorBytes];
    hn::Store(hn::BitCast(ByteTag(), v[i]), ByteTag(), quads);
    for (int64_t q = 0; 4 * q + i < n; ++q) {
      __builtin_memcpy(to + static_cast<size_t>(lane + 4 * q + i) * to_next_block, quads + 16 * q,
                       16);
    }
  }
}

// Halves at `from` of every row, one per block, as 16 per block at `to`.
HWY_INLINE void PlaceHalves(const uint8_t* const (&rows)[16], int64_t from, int64_t blocks,
                            uint8_t* to) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int r = 0; r < 16; ++r) {
      __builtin_memcpy(to + 2 * (16 * b + r), rows[r] + from + 2 * b, 2);
    }
  }
}

// Where the codes, scales and minimums of a tile begin (TileLayout, whose inline functions belong
// to no instruction set).
template <class Type>
struct TilePlaces {
  int64_t codes_of_block = Type::kLines * kLineBytes;
  int64_t scales;
  int64_t minimums;
  int64_t end;
  int64_t padded_end;

  explicit TilePlaces(int64_t blocks) {
    scales = blocks * codes_of_block;
    minimums = scales + blocks * 32;
    end = minimums + (Type::kHasMinimum ? blocks * 32 : 0);
    padded_end = (end + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
};

// Zeros for the rows from `count` on.
template <class Type>
HWY_INLINE void ClearRows(int64_t count, const TilePlaces<Type>& places, uint8_t* tile) {
  const auto missing = static_cast<size_t>(16 - count);
  for (int64_t at = 0; at < places.scales; at += kLineBytes) {
    __builtin_memset(tile + at + 4 * count, 0, 4 * missing);
  }
  for (int64_t at = places.scales; at < places.end; at += 32) {
    __builtin_memset(tile + at + 2 * count, 0, 2 * missing);
  }
}

template <class Type>
void RowsToTile(const RowsToTileArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const TilePlaces<Type> places(layout.blocks);
  auto* tile = reinterpret_cast<uint8_t*>(a.tile);
  __builtin_memset(tile + places.end, 0, static_cast<size_t>(places.padded_end - places.end));
  if (a.list.count == 0) {
    __builtin_memset(tile, 0, static_cast<size_t>(places.end));
    return;
  }
  const int64_t count = a.list.count < 16 ? a.list.count : 16;
  const uint8_t* rows[16];
  for (int64_t r = 0; r < 16; ++r) rows[r] = RowAt(a.list, r < count ? r : count - 1);
  for (int64_t g = 0; g < layout.groups; ++g) {
    const GroupPlace at = PlaceOf(layout, g);
    const int64_t left = layout.blocks - g * kLineLanes;
    const int64_t blocks = left < kLineLanes ? left : kLineLanes;
    for (int line = 0; line < Type::kLines; ++line) {
      const int64_t from = at.codes + line * at.lanes * kRowLaneBytes;
      uint8_t* to = tile + g * kLineLanes * places.codes_of_block + line * kLineBytes;
      for (int r = 0; r < 16; r += 4) {
        const uint8_t* const lines[4] = {rows[r] + from, rows[r + 1] + from, rows[r + 2] + from,
                                         rows[r + 3] + from};
        for (int64_t lane = 0; lane < blocks; lane += kLanes) {
          const int64_t n = blocks - lane < kLanes ? blocks - lane : kLanes;
          PlaceQuadOfRows(lines, lane, n, static_cast<size_t>(places.codes_of_block), to + 4 * r);
        }
      }
    }
  }
  PlaceHalves(rows, layout.scales, layout.blocks, tile + places.scales);
  if constexpr (Type::kHasMinimum) {
    PlaceHalves(rows, layout.minimums, layout.blocks, tile + places.minimums);
  }
  if (count < 16) ClearRows(count, places, tile);
}

// --- A row times tokens.

// Groups of a row that fit in a first-level cache beside some tokens.
inline constexpr int64_t kGroupsOfUnpackedRow = 32;

// A row's codes as the first operand of DotQuads, quad by quad of the group's lanes, and its scales
// as floats. Lanes that a short group lacks are zeros.
template <class Type>
struct UnpackedRow {
  HWY_ALIGN uint8_t quads[kGroupsOfUnpackedRow][8][kLineBytes];
  HWY_ALIGN float scales[kGroupsOfUnpackedRow][kLineLanes];
  HWY_ALIGN float minimums[Type::kHasMinimum ? kGroupsOfUnpackedRow : 1][kLineLanes];

  HWY_INLINE void Unpack(const uint8_t* row, const RowGroups& layout) {
    for (int64_t g = 0; g < layout.groups; ++g) {
      const GroupPlace at = PlaceOf(layout, g);
      for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
        const int64_t left = at.lanes - lane;
        const int64_t n = left < 0 ? 0 : left < kLanes ? left : kLanes;
        if (n == 0) {
          Clear(g, lane);
        } else {
          UnpackLanes(row, at, g, lane, n);
        }
      }
    }
  }

 private:
  HWY_INLINE void Clear(int64_t g, int64_t lane) {
    for (auto& line : quads[g]) __builtin_memset(line + 4 * lane, 0, kVectorBytes);
    hn::StoreU(hn::Zero(kFloats), kFloats, scales[g] + lane);
    if constexpr (Type::kHasMinimum) hn::StoreU(hn::Zero(kFloats), kFloats, minimums[g] + lane);
  }

  HWY_INLINE void UnpackLanes(const uint8_t* row, const GroupPlace& at, int64_t g, int64_t lane,
                              int64_t n) {
    for (int line = 0; line < Type::kLines; ++line) {
      const Bytes codes =
          LoadQuads<false>(row + at.codes + (line * at.lanes + lane) * kRowLaneBytes, n);
      if constexpr (Type::kLines == 4) {
        hn::Store(LowNibbles(codes), ByteTag(), quads[g][2 * line] + 4 * lane);
        hn::Store(HighNibbles(codes), ByteTag(), quads[g][2 * line + 1] + 4 * lane);
      } else {
        hn::Store(PrepareQ8_0(codes), ByteTag(), quads[g][line] + 4 * lane);
      }
    }
    hn::Store(LoadScales<false>(row + at.scales + 2 * lane, n), kFloats, scales[g] + lane);
    if constexpr (Type::kHasMinimum) {
      hn::Store(LoadScales<false>(row + at.minimums + 2 * lane, n), kFloats, minimums[g] + lane);
    }
  }
};

template <class Type, int T>
HWY_INLINE void UnpackedTimesTokens(const UnpackedRow<Type>& row, int64_t groups, const GroupQ8* x,
                                    const int32_t* tokens, float* out) {
  const GroupQ8* of[T];
  FloatVec sums[T];
  for (int t = 0; t < T; ++t) {
    of[t] = x + tokens[t] * groups;
    sums[t] = hn::Zero(kFloats);
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
      IntVec dots[T];
      for (int t = 0; t < T; ++t) {
        const IntVec code_sums = hn::LoadU(IntTag(), of[t][g].sums + lane);
        dots[t] = hn::Mul(code_sums, hn::Set(IntTag(), -Type::kOffset));
      }
      for (int q = 0; q < 8; ++q) {
        const Bytes w = hn::Load(ByteTag(), row.quads[g][q] + 4 * lane);
        for (int t = 0; t < T; ++t) {
          const Bytes quads = LoadBytes(of[t][g].codes[q] + 4 * lane);
          if constexpr (Type::kLines == 4) {
            dots[t] = DotQuads(dots[t], w, quads);
          } else {
            dots[t] = hearth::kernels::HEARTH_ISA::DotQ8_0(dots[t], w, quads);
          }
        }
      }
      const FloatVec scale = hn::Load(kFloats, row.scales[g] + lane);
      for (int t = 0; t < T; ++t) {
        const FloatVec x_scale = hn::LoadU(kFloats, of[t][g].scales + lane);
        const FloatVec scaled = hn::Mul(hn::ConvertTo(kFloats, dots[t]), x_scale);
        sums[t] = hn::MulAdd(scaled, scale, sums[t]);
        if constexpr (Type::kHasMinimum) {
          const FloatVec minimum = hn::Load(kFloats, row.minimums[g] + lane);
          const IntVec code_sums = hn::LoadU(IntTag(), of[t][g].sums + lane);
          const FloatVec x_sum = hn::Mul(hn::ConvertTo(kFloats, code_sums), x_scale);
          sums[t] = hn::MulAdd(x_sum, minimum, sums[t]);
        }
      }
    }
  }
  for (int t = 0; t < T; ++t) out[t] = hn::GetLane(hn::SumOfLanes(kFloats, sums[t]));
}

// Tokens that share the loads of a row.
inline constexpr int kTokensOfRow = 4;

template <class Type>
void RowTimesTokens(const RowTimesTokensArgs& a) noexcept {
  if (a.count == 0) return;
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  if (layout.groups > kGroupsOfUnpackedRow) {
    const int32_t first = 0;
    for (int64_t i = 0; i < a.count; ++i) {
      RowDot<Type>({{a.row, 0, &first, 1}, a.k, a.x + a.tokens[i] * layout.groups, a.out + i});
    }
    return;
  }
  UnpackedRow<Type> row;
  row.Unpack(reinterpret_cast<const uint8_t*>(a.row), layout);
  int64_t i = 0;
  for (; i + kTokensOfRow <= a.count; i += kTokensOfRow) {
    UnpackedTimesTokens<Type, kTokensOfRow>(row, layout.groups, a.x, a.tokens + i, a.out + i);
  }
  for (; i < a.count; ++i) {
    UnpackedTimesTokens<Type, 1>(row, layout.groups, a.x, a.tokens + i, a.out + i);
  }
}

// --- Rows added to sums.

// One line of a batch of rows as floats, and the rows' scales (and minimums): lanes [lane, lane +
// kLanes) of a group.
template <class Type>
struct UnpackedLine {
  HWY_ALIGN float codes[kRowsOfBatch][Type::kCodes][kLanes];

  HWY_INLINE void Unpack(const RowList& list, int64_t offset, int64_t n) {
    for (int64_t r = 0; r < list.count; ++r) {
      const Bytes line = LoadQuads<false>(RowAt(list, r) + offset, n);
      Type::ForCodes(line,
                     [&](int i, FloatVec code) HWY_ATTR { hn::Store(code, kFloats, codes[r][i]); });
    }
  }
};

template <class Type>
struct BatchScales {
  HWY_ALIGN float scales[kRowsOfBatch][kLanes];
  HWY_ALIGN float minimums[Type::kHasMinimum ? kRowsOfBatch : 1][kLanes];

  HWY_INLINE void Unpack(const RowList& list, const GroupPlace& at, int64_t lane, int64_t n) {
    for (int64_t r = 0; r < list.count; ++r) {
      const uint8_t* row = RowAt(list, r);
      hn::Store(LoadScales<false>(row + at.scales + 2 * lane, n), kFloats, scales[r]);
      if constexpr (Type::kHasMinimum) {
        hn::Store(LoadScales<false>(row + at.minimums + 2 * lane, n), kFloats, minimums[r]);
      }
    }
  }
};

// One entry of a token.
template <class Type>
HWY_INLINE void AddEntry(const RowsToSumsArgs& a, int32_t entry, const UnpackedLine<Type>& line,
                         const BatchScales<Type>& rows, FloatVec (&sums)[Type::kCodes]) {
  const int32_t r = a.places[entry];
  const FloatVec factor = hn::Set(kFloats, a.a[entry]);
  const FloatVec scale = hn::Mul(factor, hn::Load(kFloats, rows.scales[r]));
  if constexpr (Type::kHasMinimum) {
    const FloatVec minimum = hn::Mul(factor, hn::Load(kFloats, rows.minimums[r]));
    for (int i = 0; i < Type::kCodes; ++i) {
      const FloatVec code = hn::Load(kFloats, line.codes[r][i]);
      sums[i] = hn::Add(sums[i], hn::MulAdd(code, scale, minimum));
    }
  } else {
    for (int i = 0; i < Type::kCodes; ++i) {
      sums[i] = hn::MulAdd(hn::Load(kFloats, line.codes[r][i]), scale, sums[i]);
    }
  }
}

// Tokens ahead whose sums are asked for: how many entries a token has cannot be foreseen, so that
// the processor starts anew with nearly every one.
inline constexpr int64_t kTokensAhead = 3;

// The entries of one token; `to` is lane `lane` of the line's first weight.
template <class Type>
HWY_INLINE void AddEntries(const RowsToSumsArgs& a, int64_t token, const UnpackedLine<Type>& line,
                           const BatchScales<Type>& rows, float* to) {
  FloatVec sums[Type::kCodes];
  for (int i = 0; i < Type::kCodes; ++i) {
    __builtin_prefetch(to + kTokensAhead * kQuarterSums + i * kLineLanes, 1);
    sums[i] = hn::LoadU(kFloats, to + i * kLineLanes);
  }
  for (int32_t e = a.begin[token]; e < a.end[token]; e += kEntriesAtOnce) {
    for (int32_t i = 0; i < kEntriesAtOnce; ++i) AddEntry(a, e + i, line, rows, sums);
  }
  for (int i = 0; i < Type::kCodes; ++i) hn::StoreU(sums[i], kFloats, to + i * kLineLanes);
}

template <class Type>
void RowsToSums(const RowsToSumsArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const GroupPlace at = PlaceOf(layout, a.group);
  BatchScales<Type> rows;
  UnpackedLine<Type> line;
  for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
    const int64_t n = at.lanes - lane < kLanes ? at.lanes - lane : kLanes;
    rows.Unpack(a.list, at, lane, n);
    for (int l = 0; l < Type::kLines; ++l) {
      line.Unpack(a.list, at.codes + (l * at.lanes + lane) * kRowLaneBytes, n);
      const int64_t weight = l * Type::kCodes;
      float* to = a.sums + weight / kQuarterWeights * a.tokens * kQuarterSums +
                  weight % kQuarterWeights * kLineLanes + lane;
      for (int64_t t = 0; t < a.tokens; ++t, to += kQuarterSums) {
        if (a.begin[t] < a.end[t]) AddEntries<Type>(a, t, line, rows, to);
      }
    }
  }
}

inline void SumsToColumns(const float* sums, int64_t tokens, int64_t token, int64_t blocks,
                          float* out) noexcept {
  GroupSums group;
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    __builtin_memcpy(group.sums[quarter * kQuarterWeights],
                     sums + (quarter * tokens + token) * kQuarterSums,
                     kQuarterSums * sizeof(float));
  }
  StoreSums(group, blocks, out);
}

template <class Type>
constexpr void SetRowBatches(KernelTable& table) {
  constexpr auto kType = static_cast<int>(Type::kDType);
  table.rows_to_tile[kType] = RowsToTile<Type>;
  table.row_times_tokens[kType] = RowTimesTokens<Type>;
  table.rows_to_sums[kType] = RowsToSums<Type>;
}

}  // namespace hearth::kernels::HEARTH_ISA
