// Bundle rows for many tokens at once (prefill): tiles of rows, rows times the tokens that fire
// them, and rows added to the sums of these tokens. A row is unpacked once for all its tokens.
//
// Results are the bits of rows-inl.h: the same operations on the same lanes in the same order.
#pragma once

#include "kernels/simd/hot_rows-inl.h"
#include "kernels/simd/row_entries-inl.h"
#include "kernels/simd/row_parts-inl.h"
#include "kernels/simd/row_tiles-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// --- Rows times tokens.

// A group of some rows, little enough for a first-level cache: lines of codes, and scales as
// floats. Lanes that a short group lacks are zeros. Nibbles stay packed: where vectors have 256
// bits or more, reading twice as many lines takes longer than unpacking them for every token. (With
// 128 bits that was not measured; a line of them becomes two of bytes there.)
template <class Type>
struct GroupOfRows {
  static constexpr bool kIsPacked = Type::kLines == 4 && kLanes >= 8;
  static constexpr int kLines = kIsPacked ? 4 : 8;
  HWY_ALIGN uint8_t lines[kRowsOfBatch][kLines][kLineBytes];
  HWY_ALIGN float scales[kRowsOfBatch][kLineLanes];
  HWY_ALIGN float minimums[Type::kHasMinimum ? kRowsOfBatch : 1][kLineLanes];

  HWY_INLINE void Load(const RowList& list, const GroupPlace& at) {
    for (int64_t r = 0; r < list.count; ++r) {
      const uint8_t* row = RowAt(list, r);
      for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
        const int64_t left = at.lanes - lane;
        const int64_t n = left < 0 ? 0 : left < kLanes ? left : kLanes;
        if (n == 0) {
          Clear(r, lane);
        } else {
          LoadLanes(row, at, r, lane, n);
        }
      }
    }
  }

 private:
  HWY_INLINE void Clear(int64_t r, int64_t lane) {
    for (auto& line : lines[r]) __builtin_memset(line + 4 * lane, 0, kVectorBytes);
    hn::StoreU(hn::Zero(kFloats), kFloats, scales[r] + lane);
    if constexpr (Type::kHasMinimum) hn::StoreU(hn::Zero(kFloats), kFloats, minimums[r] + lane);
  }

  HWY_INLINE void LoadLanes(const uint8_t* row, const GroupPlace& at, int64_t r, int64_t lane,
                            int64_t n) {
    for (int line = 0; line < Type::kLines; ++line) {
      const Bytes codes =
          LoadQuads<false>(row + at.codes + (line * at.lanes + lane) * kRowLaneBytes, n);
      if constexpr (kIsPacked) {
        hn::Store(codes, ByteTag(), lines[r][line] + 4 * lane);
      } else if constexpr (Type::kLines == 4) {
        hn::Store(LowNibbles(codes), ByteTag(), lines[r][2 * line] + 4 * lane);
        hn::Store(HighNibbles(codes), ByteTag(), lines[r][2 * line + 1] + 4 * lane);
      } else {
        hn::Store(PrepareQ8_0(codes), ByteTag(), lines[r][line] + 4 * lane);
      }
    }
    LaneScales<Type> of_row;
    of_row.template Load<false>(row, at, lane, n);
    hn::Store(of_row.scale, kFloats, scales[r] + lane);
    if constexpr (Type::kHasMinimum) hn::Store(of_row.minimum, kFloats, minimums[r] + lane);
  }
};

// A group of a token's activations while rows are multiplied with it.
struct TokenGroup {
  // Where a vector has a register for every quad of all lanes, they stay there.
  static constexpr int kHeld = kVectorsPerLine == 1 ? 8 : 0;
  const GroupQ8& x;
  Bytes quads[kHeld > 0 ? kHeld : 1];
  IntVec code_sums[kVectorsPerLine];
  FloatVec scales[kVectorsPerLine];

  HWY_INLINE explicit TokenGroup(const GroupQ8& group) : x(group) {
    Unrolled<kHeld>([&]<int q>() HEARTH_INLINED HWY_ATTR { quads[q] = LoadBytes(x.codes[q]); });
    for (int v = 0; v < kVectorsPerLine; ++v) {
      code_sums[v] = hn::LoadU(IntTag(), x.sums + v * kLanes);
      scales[v] = hn::LoadU(kFloats, x.scales + v * kLanes);
    }
  }
  template <int q>
  HWY_INLINE Bytes Quad(int v) const {
    if constexpr (kHeld > 0) return quads[q];
    return LoadBytes(x.codes[q] + v * kVectorBytes);
  }
};

// Vector v of row r's lanes times a token's.
template <class Type>
HWY_INLINE IntVec RowTimesToken(const GroupOfRows<Type>& rows, int64_t r, const TokenGroup& token,
                                int v) {
  LaneDots<Type> dots;
  dots.Start(StartOfDots<Type>(token.code_sums[v]));
  Unrolled<GroupOfRows<Type>::kLines>([&]<int line>() HEARTH_INLINED HWY_ATTR {
    const Bytes w = hn::Load(ByteTag(), rows.lines[r][line] + v * kVectorBytes);
    if constexpr (GroupOfRows<Type>::kIsPacked) {
      const LineQuads<Type> codes(w);
      dots.AddLow(codes.low, token.Quad<2 * line>(v));
      dots.AddHigh(codes.high, token.Quad<2 * line + 1>(v));
    } else {
      dots.AddLow(w, token.Quad<line>(v));
    }
  });
  return dots.Total();
}

// The rows of entries [entry, end) of a token times one of its groups. The products are added to
// those of the groups before, which do not exist where is_first.
template <class Type>
HWY_INLINE void EntriesTimesGroup(const GroupOfRows<Type>& rows, const TokenGroup& token,
                                  const int32_t* places, int64_t entry, int64_t end, bool is_first,
                                  float* lanes) {
  for (; entry < end; ++entry) {
    const int64_t r = places[entry];
    float* to = lanes + entry * kLanesOfEntry;
    FloatVec sum = is_first ? hn::Zero(kFloats) : hn::LoadU(kFloats, to);
    for (int v = 0; v < kVectorsPerLine; ++v) {
      const IntVec dots = RowTimesToken(rows, r, token, v);
      LaneScales<Type> scales;
      scales.scale = hn::Load(kFloats, rows.scales[r] + v * kLanes);
      if constexpr (Type::kHasMinimum) {
        scales.minimum = hn::Load(kFloats, rows.minimums[r] + v * kLanes);
      }
      sum = scales.AddDots(sum, dots, token.code_sums[v], token.scales[v]);
    }
    hn::StoreU(sum, kFloats, to);
  }
}

// Tokens ahead whose activations (sums) are asked for.
inline constexpr int64_t kTokensAhead = 3;

// Rows lie in the first-level cache, a group at a time; so activations are read from the
// second-level cache once for all rows that a token meets. Sums pause in memory meanwhile. What is
// read again and again is not looked up in `a`, which a store of a vector might have changed.
template <class Type>
HWY_INLINE void RowsTimesSomeTokens(const RowsTimesTokensArgs& a, const RowGroups& layout,
                                    const int32_t* tokens, int64_t count) {
  const GroupQ8* const x = a.x;
  const int32_t* const begin = a.begin;
  const int32_t* const places = a.places;
  float* const lanes = a.lanes;
  GroupOfRows<Type> rows;
  for (int64_t g = 0; g < layout.groups; ++g) {
    const GroupPlace at = PlaceOf(layout, g);
    rows.Load(a.list, at);
    const RowList none = {};
    const bool is_last = g + 1 == layout.groups;
    GroupFetcher<Type> own(is_last ? none : a.list, PlaceOf(layout, is_last ? g : g + 1), count, 1);
    GroupFetcher<Type> next(a.next, at, count, 1);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t later = tokens[i + kTokensAhead < count ? i + kTokensAhead : count - 1];
      const auto* ahead = reinterpret_cast<const int8_t*>(x + later * layout.groups + g);
      for (size_t line = 0; line < sizeof(GroupQ8); line += kLineBytes) {
        __builtin_prefetch(ahead + line);
      }
      own.Step(i);
      next.Step(i);
      const int64_t t = tokens[i];
      const TokenGroup token(x[t * layout.groups + g]);
      EntriesTimesGroup<Type>(rows, token, places, begin[t], begin[t + 1], g == 0, lanes);
    }
  }
}

template <class Type>
void RowsTimesTokens(const RowsTimesTokensArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  if (AreHot(a.begin[a.tokens], a.tokens, a.list.count)) {
    HotRowsTimesTokens<Type>(a, layout);
    return;
  }
  ForTokensByCount<kRowsOfBatch>(a.begin, a.tokens, [&](const int32_t* tokens, int64_t count) {
    RowsTimesSomeTokens<Type>(a, layout, tokens, count);
  });
  for (int32_t e = 0; e < a.begin[a.tokens]; ++e) {
    const FloatVec sums = hn::LoadU(kFloats, a.lanes + e * kLanesOfEntry);
    a.out[e] = hn::GetLane(hn::SumOfLanes(kFloats, sums));
  }
}

// --- Rows added to sums.

// One line of some rows: codes as bfloat16, which holds them exactly, two to a lane, so that twice
// as many rows find room in the first-level cache as with floats.
template <class Type>
struct UnpackedLine {
  static constexpr int kPairs = Type::kCodes / 2;
  HWY_ALIGN int32_t codes[kRowsOfSums][kPairs][kLanes];

  HWY_INLINE void Unpack(const RowList& list, int64_t offset, int64_t n) {
    for (int64_t r = 0; r < list.count; ++r) {
      const Bytes line = LoadQuads<false>(RowAt(list, r) + offset, n);
      IntVec bits[Type::kCodes];
      Type::ForCodes(line,
                     [&](int i, FloatVec code) HWY_ATTR { bits[i] = hn::BitCast(IntTag(), code); });
      for (int i = 0; i < kPairs; ++i) {
        const auto low =
            hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<IntTag>(), bits[2 * i]));
        hn::Store(hn::Or(hn::BitCast(IntTag(), low), bits[2 * i + 1]), IntTag(), codes[r][i]);
      }
    }
  }

  HWY_INLINE FloatVec First(int64_t r, int pair) const {
    return hn::BitCast(kFloats, hn::ShiftLeft<16>(hn::Load(IntTag(), codes[r][pair])));
  }
  HWY_INLINE FloatVec Second(int64_t r, int pair) const {
    return hn::BitCast(kFloats, hn::And(hn::Load(IntTag(), codes[r][pair]),
                                        hn::Set(IntTag(), static_cast<int32_t>(0xFFFF0000u))));
  }
};

// Entries [entry, end) of a token; `to` is where its sums of the line begin.
template <class Type>
HWY_INLINE void AddEntries(const int32_t* places, const float* factors, int64_t entry, int64_t end,
                           const UnpackedLine<Type>& line, const ScalesOfRows<Type>& rows,
                           float* to) {
  FloatVec sums[Type::kCodes];
  for (int i = 0; i < Type::kCodes; ++i) sums[i] = hn::LoadU(kFloats, to + i * kLineLanes);
  for (; entry < end; ++entry) {
    const int64_t r = places[entry];
    const LaneScales<Type> scales = rows.Times(factors[entry], r);
    for (int i = 0; i < Type::kCodes; i += 2) {
      sums[i] = scales.AddCode(sums[i], line.First(r, i / 2));
      sums[i + 1] = scales.AddCode(sums[i + 1], line.Second(r, i / 2));
    }
  }
  for (int i = 0; i < Type::kCodes; ++i) hn::StoreU(sums[i], kFloats, to + i * kLineLanes);
}

template <class Type>
HWY_INLINE void RowsToSomeSums(const RowsToSumsArgs& a, const GroupPlace& at, const int32_t* tokens,
                               int64_t count) {
  const int32_t* const begin = a.begin;
  const int32_t* const places = a.places;
  const float* const factors = a.a;
  ScalesOfRows<Type> rows;
  UnpackedLine<Type> line;
  const int64_t vectors = (at.lanes + kLanes - 1) / kLanes;
  GroupFetcher<Type> next(a.next, at, count, Type::kLines * vectors);
  for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
    const int64_t n = at.lanes - lane < kLanes ? at.lanes - lane : kLanes;
    rows.Unpack(a.list, at, lane, n);
    for (int l = 0; l < Type::kLines; ++l) {
      line.Unpack(a.list, at.codes + (l * at.lanes + lane) * kRowLaneBytes, n);
      float* sums = SumsOfLine<Type>(a, l, lane);
      for (int64_t i = 0; i < count; ++i) {
        next.Step(i);
        const int64_t later = tokens[i + kTokensAhead < count ? i + kTokensAhead : count - 1];
        for (int c = 0; c < Type::kCodes; ++c) {
          __builtin_prefetch(sums + later * kQuarterSums + c * kLineLanes, 1);
        }
        const int64_t t = tokens[i];
        AddEntries<Type>(places, factors, begin[t], begin[t + 1], line, rows,
                         sums + t * kQuarterSums);
      }
    }
  }
}

template <class Type>
void RowsToSums(const RowsToSumsArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const GroupPlace at = PlaceOf(layout, a.group);
  if (AreHot(a.begin[a.tokens] - a.begin[0], a.tokens, a.list.count) &&
      ScalesAreNumbers<Type>(a.list, at)) {
    HotRowsToSums<Type>(a, at);
    return;
  }
  ForTokensByCount<kRowsOfSums>(a.begin, a.tokens, [&](const int32_t* tokens, int64_t count) {
    RowsToSomeSums<Type>(a, at, tokens, count);
  });
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
