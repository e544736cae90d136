// Bundle rows for many tokens at once (prefill): tiles of rows, rows times the tokens that fire
// them, and rows added to the sums of these tokens. A row is unpacked once for all its tokens.
//
// Results are the bits of rows-inl.h: the same operations on the same lanes in the same order.
#pragma once

#include "kernels/row_entries-inl.h"
#include "kernels/row_tiles-inl.h"
#include "kernels/rows-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// --- Rows times tokens.

// A group of some rows: codes as the first operand of DotQuads, quad by quad of the group's lanes,
// and scales as floats: less than a first-level cache holds. Lanes that a short group lacks are
// zeros.
template <class Type>
struct UnpackedGroup {
  HWY_ALIGN uint8_t quads[kRowsOfBatch][8][kLineBytes];
  HWY_ALIGN float scales[kRowsOfBatch][kLineLanes];
  HWY_ALIGN float minimums[Type::kHasMinimum ? kRowsOfBatch : 1][kLineLanes];

  HWY_INLINE void Unpack(const RowList& list, const GroupPlace& at) {
    for (int64_t r = 0; r < list.count; ++r) {
      const uint8_t* row = RowAt(list, r);
      for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
        const int64_t left = at.lanes - lane;
        const int64_t n = left < 0 ? 0 : left < kLanes ? left : kLanes;
        if (n == 0) {
          Clear(r, lane);
        } else {
          UnpackLanes(row, at, r, lane, n);
        }
      }
    }
  }

 private:
  HWY_INLINE void Clear(int64_t r, int64_t lane) {
    for (auto& line : quads[r]) __builtin_memset(line + 4 * lane, 0, kVectorBytes);
    hn::StoreU(hn::Zero(kFloats), kFloats, scales[r] + lane);
    if constexpr (Type::kHasMinimum) hn::StoreU(hn::Zero(kFloats), kFloats, minimums[r] + lane);
  }

  HWY_INLINE void UnpackLanes(const uint8_t* row, const GroupPlace& at, int64_t r, int64_t lane,
                              int64_t n) {
    for (int line = 0; line < Type::kLines; ++line) {
      const Bytes codes =
          LoadQuads<false>(row + at.codes + (line * at.lanes + lane) * kRowLaneBytes, n);
      if constexpr (Type::kLines == 4) {
        hn::Store(LowNibbles(codes), ByteTag(), quads[r][2 * line] + 4 * lane);
        hn::Store(HighNibbles(codes), ByteTag(), quads[r][2 * line + 1] + 4 * lane);
      } else {
        hn::Store(PrepareQ8_0(codes), ByteTag(), quads[r][line] + 4 * lane);
      }
    }
    hn::Store(LoadScales<false>(row + at.scales + 2 * lane, n), kFloats, scales[r] + lane);
    if constexpr (Type::kHasMinimum) {
      hn::Store(LoadScales<false>(row + at.minimums + 2 * lane, n), kFloats, minimums[r] + lane);
    }
  }
};

// The rows of a token's entries times lanes [lane, lane + kLanes) of one of its groups. The
// products are added to those of the lanes before, which do not exist where is_first.
template <class Type>
HWY_INLINE void EntriesTimesLanes(const UnpackedGroup<Type>& rows, const GroupQ8& x, int64_t lane,
                                  const int32_t* places, int64_t count, bool is_first,
                                  float* lanes) {
  const IntVec code_sums = hn::LoadU(IntTag(), x.sums + lane);
  const IntVec start = hn::Mul(code_sums, hn::Set(IntTag(), -Type::kOffset));
  const FloatVec x_scale = hn::LoadU(kFloats, x.scales + lane);
  Bytes quads[8];
  Unrolled<8>([&]<int q>()
                  HEARTH_INLINED HWY_ATTR { quads[q] = LoadBytes(x.codes[q] + 4 * lane); });
  for (int64_t i = 0; i < count; ++i, lanes += kLanesOfEntry) {
    const int32_t r = places[i];
    IntVec dot = start;
    Unrolled<8>([&]<int q>() HEARTH_INLINED HWY_ATTR {
      const Bytes w = hn::Load(ByteTag(), rows.quads[r][q] + 4 * lane);
      if constexpr (Type::kLines == 4) {
        dot = DotQuads(dot, w, quads[q]);
      } else {
        dot = hearth::kernels::HEARTH_ISA::DotQ8_0(dot, w, quads[q]);
      }
    });
    FloatVec sum = is_first ? hn::Zero(kFloats) : hn::LoadU(kFloats, lanes);
    const FloatVec scaled = hn::Mul(hn::ConvertTo(kFloats, dot), x_scale);
    sum = hn::MulAdd(scaled, hn::Load(kFloats, rows.scales[r] + lane), sum);
    if constexpr (Type::kHasMinimum) {
      const FloatVec x_sum = hn::Mul(hn::ConvertTo(kFloats, code_sums), x_scale);
      sum = hn::MulAdd(x_sum, hn::Load(kFloats, rows.minimums[r] + lane), sum);
    }
    hn::StoreU(sum, kFloats, lanes);
  }
}

// Tokens ahead whose activations (sums) are asked for.
inline constexpr int64_t kTokensAhead = 3;

// Rows lie unpacked in the first-level cache, a group at a time; so activations are read from the
// second-level cache once for all rows that a token meets. Sums pause in memory meanwhile.
template <class Type>
HWY_INLINE void RowsTimesSomeTokens(const RowsTimesTokensArgs& a, const RowGroups& layout,
                                    const TokensByCount& tokens) {
  UnpackedGroup<Type> rows;
  for (int64_t g = 0; g < layout.groups; ++g) {
    const GroupPlace at = PlaceOf(layout, g);
    rows.Unpack(a.list, at);
    const RowList none = {};
    const bool is_last = g + 1 == layout.groups;
    GroupFetcher<Type> own(is_last ? none : a.list, PlaceOf(layout, is_last ? g : g + 1),
                           tokens.size());
    GroupFetcher<Type> next(a.next, at, tokens.size());
    for (int64_t i = 0; i < tokens.size(); ++i) {
      const int64_t t = tokens.token(i);
      const auto* ahead =
          reinterpret_cast<const int8_t*>(a.x + tokens.Ahead(i, kTokensAhead) * layout.groups + g);
      for (size_t line = 0; line < sizeof(GroupQ8); line += kLineBytes) {
        __builtin_prefetch(ahead + line);
      }
      own.Step();
      next.Step();
      const int32_t e = a.begin[t];
      for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
        EntriesTimesLanes<Type>(rows, a.x[t * layout.groups + g], lane, a.places + e,
                                a.begin[t + 1] - e, g == 0 && lane == 0,
                                a.lanes + e * kLanesOfEntry);
      }
    }
  }
}

template <class Type>
void RowsTimesTokens(const RowsTimesTokensArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  for (int64_t first = 0; first < a.tokens; first += TokensByCount::kMost) {
    const int64_t left = a.tokens - first;
    const int64_t count = left < TokensByCount::kMost ? left : TokensByCount::kMost;
    const TokensByCount tokens(a.begin, first, first + count);
    if (tokens.size() > 0) RowsTimesSomeTokens<Type>(a, layout, tokens);
  }
  for (int32_t e = 0; e < a.begin[a.tokens]; ++e) {
    const FloatVec sums = hn::LoadU(kFloats, a.lanes + e * kLanesOfEntry);
    a.out[e] = hn::GetLane(hn::SumOfLanes(kFloats, sums));
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

// The entries of one token; `to` is where its sums of the line begin, `ahead` where those of a
// later one do.
template <class Type>
HWY_INLINE void AddEntries(const RowsToSumsArgs& a, int64_t token, const UnpackedLine<Type>& line,
                           const BatchScales<Type>& rows, float* to, const float* ahead) {
  FloatVec sums[Type::kCodes];
  for (int i = 0; i < Type::kCodes; ++i) {
    __builtin_prefetch(ahead + i * kLineLanes, 1);
    sums[i] = hn::LoadU(kFloats, to + i * kLineLanes);
  }
  for (int32_t e = a.begin[token]; e < a.begin[token + 1]; ++e) {
    AddEntry(a, e, line, rows, sums);
  }
  for (int i = 0; i < Type::kCodes; ++i) hn::StoreU(sums[i], kFloats, to + i * kLineLanes);
}

template <class Type>
HWY_INLINE void RowsToSomeSums(const RowsToSumsArgs& a, const GroupPlace& at,
                               const TokensByCount& tokens) {
  BatchScales<Type> rows;
  UnpackedLine<Type> line;
  const int64_t vectors = (at.lanes + kLanes - 1) / kLanes;
  GroupFetcher<Type> next(a.next, at, tokens.size() * Type::kLines * vectors);
  for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
    const int64_t n = at.lanes - lane < kLanes ? at.lanes - lane : kLanes;
    rows.Unpack(a.list, at, lane, n);
    for (int l = 0; l < Type::kLines; ++l) {
      line.Unpack(a.list, at.codes + (l * at.lanes + lane) * kRowLaneBytes, n);
      const int64_t weight = l * Type::kCodes;
      float* sums = a.sums + weight / kQuarterWeights * a.tokens * kQuarterSums +
                    weight % kQuarterWeights * kLineLanes + lane;
      for (int64_t i = 0; i < tokens.size(); ++i) {
        next.Step();
        const int64_t t = tokens.token(i);
        AddEntries<Type>(a, t, line, rows, sums + t * kQuarterSums,
                         sums + tokens.Ahead(i, kTokensAhead) * kQuarterSums);
      }
    }
  }
}

template <class Type>
void RowsToSums(const RowsToSumsArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const GroupPlace at = PlaceOf(layout, a.group);
  for (int64_t first = 0; first < a.tokens; first += TokensByCount::kMost) {
    const int64_t left = a.tokens - first;
    const int64_t count = left < TokensByCount::kMost ? left : TokensByCount::kMost;
    const TokensByCount tokens(a.begin, first, first + count);
    if (tokens.size() > 0) RowsToSomeSums<Type>(a, at, tokens);
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
  table.rows_times_tokens[kType] = RowsTimesTokens<Type>;
  table.rows_to_sums[kType] = RowsToSums<Type>;
}

}  // namespace hearth::kernels::HEARTH_ISA
