// Bundle rows that most tokens of a batch meet: every row with every token, in blocks.
//
// What a pair costs beside its products is shared by the block, which pays for the pairs that are
// no entries where those are few. Results are the bits of row_batches-inl.h.
#pragma once

#include "kernels/simd/row_entries-inl.h"
#include "kernels/simd/row_parts-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Whether lists of entries (kernel_table.h) take longer than all pairs: measured, both take as long
// where two pairs of three are entries (docs/decisions/0007).
HWY_INLINE bool AreHot(int64_t entries, int64_t tokens, int64_t rows) {
  return 10 * entries >= 7 * tokens * rows;
}

// --- Rows times tokens.

// A block's products stay in registers until all columns are done. Its tokens' activations fill
// half of a first-level cache: 5 KiB each with 4096 columns.
template <class Type>
struct HotBlock {
  static constexpr int kRows = kLanes == 16 ? 4 : 1;
  static constexpr int kTokens = 4;
  const uint8_t* rows[kRows];
  const GroupQ8* x[kTokens];  // their first groups
  FloatVec sums[kRows][kTokens];

  HWY_INLINE void Clear() {
    for (auto& of_row : sums) {
      for (FloatVec& sum : of_row) sum = hn::Zero(kFloats);
    }
  }

  // Lanes [lane, lane + n) of group g; n = kLanes unless the group is short.
  template <bool kWhole>
  HWY_INLINE void AddLanes(const GroupPlace& at, int64_t g, int64_t lane, int64_t n) {
    IntVec start[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      start[t] = StartOfDots<Type>(hn::LoadU(IntTag(), x[t][g].sums + lane));
    }
    for (int r = 0; r < kRows; ++r) AddRow<kWhole>(r, at, g, lane, n, start);
  }

  template <bool kWhole>
  HWY_INLINE void AddRow(int r, const GroupPlace& at, int64_t g, int64_t lane, int64_t n,
                         const IntVec (&start)[kTokens]) {
    LaneDots<Type> dots[kTokens];
    for (int t = 0; t < kTokens; ++t) dots[t].Start(start[t]);
    const int64_t line_bytes = (kWhole ? kLineLanes : at.lanes) * kRowLaneBytes;
    const uint8_t* codes = rows[r] + at.codes + lane * kRowLaneBytes;
    Unrolled<Type::kLines>([&]<int line>() HEARTH_INLINED HWY_ATTR {
      const LineQuads<Type> quads(LoadQuads<kWhole>(codes + line * line_bytes, n));
      constexpr int kQuads = LineQuads<Type>::kQuads;
      for (int t = 0; t < kTokens; ++t) {
        const auto& of_token = x[t][g].codes;
        dots[t].AddLow(quads.low, LoadBytes(of_token[kQuads * line] + 4 * lane));
        if constexpr (kQuads == 2) {
          dots[t].AddHigh(quads.high, LoadBytes(of_token[kQuads * line + 1] + 4 * lane));
        }
      }
    });
    LaneScales<Type> scales;
    scales.template Load<kWhole>(rows[r], at, lane, n);
    for (int t = 0; t < kTokens; ++t) {
      const IntVec code_sums = hn::LoadU(IntTag(), x[t][g].sums + lane);
      const FloatVec x_scale = hn::LoadU(kFloats, x[t][g].scales + lane);
      sums[r][t] = scales.AddDots(sums[r][t], dots[t].Total(), code_sums, x_scale);
    }
  }
};

// All rows with `count` tokens from `first` on. A block's last row or token is there several times
// where rows or tokens run out.
template <class Type>
HWY_INLINE void HotRowsTimesBlock(const RowsTimesTokensArgs& a, const RowGroups& layout,
                                  int64_t first, int64_t count) {
  using Block = HotBlock<Type>;
  Block block;
  int32_t entries[Block::kTokens];  // the next of each token
  for (int t = 0; t < Block::kTokens; ++t) {
    const int64_t token = first + (t < count ? t : count - 1);
    block.x[t] = a.x + token * layout.groups;
    entries[t] = a.begin[token];
  }
  for (int64_t row = 0; row < a.list.count; row += Block::kRows) {
    const int64_t rows = a.list.count - row < Block::kRows ? a.list.count - row : Block::kRows;
    for (int r = 0; r < Block::kRows; ++r) {
      block.rows[r] = RowAt(a.list, row + (r < rows ? r : rows - 1));
    }
    block.Clear();
    ForLanesOfRow(layout,
                  [&]<bool kWhole>(const GroupPlace& at, int64_t g, int64_t lane, int64_t n)
                      HEARTH_INLINED HWY_ATTR { block.template AddLanes<kWhole>(at, g, lane, n); });
    for (int t = 0; t < count; ++t) {
      const int32_t end = a.begin[first + t + 1];
      for (int r = 0; r < rows; ++r) {
        if (entries[t] == end || a.places[entries[t]] != row + r) continue;
        a.out[entries[t]++] = hn::GetLane(hn::SumOfLanes(kFloats, block.sums[r][t]));
      }
    }
  }
}

template <class Type>
HWY_INLINE void HotRowsTimesTokens(const RowsTimesTokensArgs& a, const RowGroups& layout) {
  constexpr int64_t kTokens = HotBlock<Type>::kTokens;
  for (int64_t t = 0; t < a.tokens; t += kTokens) {
    const int64_t left = a.tokens - t;
    HotRowsTimesBlock<Type>(a, layout, t, left < kTokens ? left : kTokens);
  }
}

// --- Rows added to sums.

// A line of some rows as floats: half of a first-level cache.
template <class Type>
struct FloatLine {
  static constexpr int64_t kRows = 64;
  HWY_ALIGN float codes[kRows][Type::kCodes][kLanes];

  // Rows [first, first + count) of the list.
  HWY_INLINE void Unpack(const RowList& list, int64_t first, int64_t count, int64_t offset,
                         int64_t n) {
    for (int64_t r = 0; r < count; ++r) {
      const Bytes line = LoadQuads<false>(RowAt(list, first + r) + offset, n);
      Type::ForCodes(line,
                     [&](int i, FloatVec code) HWY_ATTR { hn::Store(code, kFloats, codes[r][i]); });
    }
  }
};

// Tokens at once: as many as registers have room for beside a code.
inline constexpr int kTokensOfHotSums = kLanes == 16 ? 3 : 1;

// Whether no scale of a group is infinite or not a number: 0 times it would be no number then.
template <class Type>
HWY_INLINE bool ScalesAreNumbers(const RowList& list, const GroupPlace& at) {
  auto numbers = hn::Eq(hn::Zero(kFloats), hn::Zero(kFloats));
  for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
    const int64_t n = at.lanes - lane < kLanes ? at.lanes - lane : kLanes;
    for (int64_t r = 0; r < list.count; ++r) {
      LaneScales<Type> of_row;
      of_row.template Load<false>(RowAt(list, r), at, lane, n);
      numbers = hn::And(numbers, hn::IsFinite(of_row.scale));
      if constexpr (Type::kHasMinimum) numbers = hn::And(numbers, hn::IsFinite(of_row.minimum));
    }
  }
  return hn::AllTrue(kFloats, numbers);
}

// The factors of some tokens and all rows of a list, 0 where a token does not meet a row: adding
// zeros to a sum leaves its bits, since no sum is -0 (it begins with +0, and numbers that add up to
// zero give +0).
struct HotFactors {
  static constexpr int64_t kTokens = 96;
  HWY_ALIGN float factors[kTokens][kRowsOfSums];

  HWY_INLINE void Fill(const RowsToSumsArgs& a, int64_t first, int64_t count) {
    __builtin_memset(factors, 0, static_cast<size_t>(count) * sizeof(factors[0]));
    for (int64_t t = 0; t < count; ++t) {
      for (int32_t e = a.begin[first + t]; e < a.begin[first + t + 1]; ++e) {
        factors[t][a.places[e]] = a.a[e];
      }
    }
  }
};

// T tokens, whose sums of the line lie kQuarterSums apart, as their factors lie kRowsOfSums.
template <class Type, int T>
HWY_INLINE void AddHotRows(const FloatLine<Type>& line, const ScalesOfRows<Type>& rows,
                           int64_t first, int64_t count, const float* factors, float* to) {
  FloatVec sums[T][Type::kCodes];
  for (int t = 0; t < T; ++t) {
    for (int i = 0; i < Type::kCodes; ++i) {
      sums[t][i] = hn::LoadU(kFloats, to + t * kQuarterSums + i * kLineLanes);
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    LaneScales<Type> scales[T];
    for (int t = 0; t < T; ++t) {
      scales[t] = rows.Times(factors[t * kRowsOfSums + first + r], first + r);
    }
    for (int i = 0; i < Type::kCodes; ++i) {
      const FloatVec code = hn::Load(kFloats, line.codes[r][i]);
      for (int t = 0; t < T; ++t) sums[t][i] = scales[t].AddCode(sums[t][i], code);
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int i = 0; i < Type::kCodes; ++i) {
      hn::StoreU(sums[t][i], kFloats, to + t * kQuarterSums + i * kLineLanes);
    }
  }
}

// `sums` is where the first token's sums of a line begin.
template <class Type>
HWY_INLINE void AddHotLine(const FloatLine<Type>& line, const ScalesOfRows<Type>& rows,
                           int64_t first, int64_t count, const HotFactors& factors, int64_t tokens,
                           float* sums) {
  int64_t t = 0;
  for (; t + kTokensOfHotSums <= tokens; t += kTokensOfHotSums) {
    AddHotRows<Type, kTokensOfHotSums>(line, rows, first, count, factors.factors[t],
                                       sums + t * kQuarterSums);
  }
  for (; t < tokens; ++t) {
    AddHotRows<Type, 1>(line, rows, first, count, factors.factors[t], sums + t * kQuarterSums);
  }
}

template <class Type>
HWY_INLINE void HotRowsToSums(const RowsToSumsArgs& a, const GroupPlace& at) {
  HotFactors factors;
  ScalesOfRows<Type> rows;
  FloatLine<Type> line;
  for (int64_t token = 0; token < a.tokens; token += HotFactors::kTokens) {
    const int64_t left = a.tokens - token;
    const int64_t tokens = left < HotFactors::kTokens ? left : HotFactors::kTokens;
    factors.Fill(a, token, tokens);
    for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
      const int64_t n = at.lanes - lane < kLanes ? at.lanes - lane : kLanes;
      rows.Unpack(a.list, at, lane, n);
      for (int l = 0; l < Type::kLines; ++l) {
        float* sums = SumsOfLine<Type>(a, l, lane) + token * kQuarterSums;
        for (int64_t r = 0; r < a.list.count; r += line.kRows) {
          const int64_t count = a.list.count - r < line.kRows ? a.list.count - r : line.kRows;
          line.Unpack(a.list, r, count, at.codes + (l * at.lanes + lane) * kRowLaneBytes, n);
          AddHotLine<Type>(line, rows, r, count, factors, tokens, sums);
        }
      }
    }
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
