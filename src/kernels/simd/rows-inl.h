// Single neurons from bundle rows (tensor/row_groups.h): dot products with activations, and rows
// added up with a factor each.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/narrow-inl.h"
#include "kernels/simd/row_list-inl.h"
#include "kernels/simd/row_types-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Groups that rows are added to before the next ones: their sums (2 KiB each) leave room in the
// first-level cache, and what is read of a row is long enough to stream.
inline constexpr int64_t kGroupsOfSum = 8;

// Asks for the scales (minimums) of groups [begin, end) of a row. Call it after all lines of their
// codes: lines that are asked for in ascending order come some 10% sooner.
template <class Type>
HWY_INLINE void FetchScalesAhead(const uint8_t* row, bool near, const RowGroups& layout,
                                 int64_t begin, int64_t end) {
  const auto fetch = [near, begin, end](const uint8_t* of_groups) {
    constexpr int64_t kGroupBytes = 2 * kLineLanes;
    for (int64_t at = begin * kGroupBytes; at < end * kGroupBytes; at += kLineBytes) {
      FetchAhead(of_groups + at, near);
    }
  };
  fetch(row + layout.scales);
  if constexpr (Type::kHasMinimum) fetch(row + layout.minimums);
}

// What LoadsRowsFirst asks for works on sections of rows: all of one is loaded, then it is
// multiplied, while what comes next is asked for as far as memory gets meanwhile.
//
// Lines of codes that a row has in a section: ten rows' fit into the first-level cache.
inline constexpr int kLinesOfSection = 32;
template <class Type>
inline constexpr int64_t kGroupsOfSection = kLinesOfSection / Type::kLines;
// For so many lines in work one is asked for of those that come next. More were no better.
inline constexpr int kLinesPerRequest = 4;

// Loads a byte of every line of [begin, end) of all rows, line by line.
template <int R>
HWY_INLINE void LoadLines(const uint8_t* const (&rows)[R], int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at += kLineBytes) {
    for (int r = 0; r < R; ++r) {
      const uint8_t byte = rows[r][at];
      __asm__ volatile("" : : "r"(byte));  // one instruction, where a volatile would take two
    }
  }
}

// Asks for N lines of all rows, from `at` on.
template <int N, int R>
HWY_INLINE void FetchLines(const uint8_t* const (&rows)[R], int64_t at) {
  for (int line = 0; line < N; ++line) {
    for (int r = 0; r < R; ++r) FetchAhead(rows[r] + at + line * kLineBytes, true);
  }
}

// Loads all of groups [begin, end).
template <class Type, int R>
HWY_INLINE void LoadSection(const uint8_t* const (&rows)[R], const RowGroups& layout, int64_t begin,
                            int64_t end) {
  const bool is_last = end == layout.groups;
  LoadLines(rows, begin * layout.group_bytes, is_last ? layout.scales : end * layout.group_bytes);
  const int64_t lanes_begin = begin * kLineLanes;
  const int64_t lanes_end = is_last ? layout.lanes : end * kLineLanes;
  const auto load = [&](int64_t of_groups) HWY_ATTR {
    LoadLines(rows, of_groups + 2 * lanes_begin, of_groups + 2 * lanes_end);
  };
  load(layout.scales);
  if constexpr (Type::kHasMinimum) load(layout.minimums);
}

// kFetches: as lines are multiplied, the same ones of rows `ahead` are asked for.
template <class Type, int R, bool kFetches>
struct DotTile {
  const uint8_t* rows[R];
  const uint8_t* ahead[R];
  bool near;
  FloatVec sums[R];

  // Lanes [lane, lane + n) of a group; n = kLanes unless the group is short.
  template <bool kWhole>
  HWY_INLINE void AddLanes(const GroupPlace& at, const GroupQ8& x, int64_t lane, int64_t n) {
    const IntVec code_sums = hn::LoadU(IntTag(), x.sums + lane);
    typename Type::Sums dots[R];
    for (auto& dot : dots) dot.Start(StartOfDots<Type>(code_sums));
    const int64_t line_bytes = (kWhole ? kLineLanes : at.lanes) * kRowLaneBytes;
    for (int line = 0; line < Type::kLines; ++line) {
      const int64_t offset = at.codes + line * line_bytes + lane * kRowLaneBytes;
      const int8_t* quads = x.codes[line * (8 / Type::kLines)] + lane * kRowLaneBytes;
      for (int r = 0; r < R; ++r) {
        if constexpr (kFetches) {
          if (lane == 0) FetchAhead(ahead[r] + offset, near);
        }
        Type::AddLine(dots[r], LoadQuads<kWhole>(rows[r] + offset, n), quads);
      }
    }
    const FloatVec x_scale = hn::LoadU(kFloats, x.scales + lane);
    for (int r = 0; r < R; ++r) {
      LaneScales<Type> scales;
      scales.template Load<kWhole>(rows[r], at, lane, n);
      sums[r] = scales.AddDots(sums[r], dots[r].Total(), code_sums, x_scale);
    }
  }
};

// R rows of the list, `apart` from each other; meanwhile those after each of them are fetched.
template <class Type, int R>
HWY_INLINE void DotRows(const RowDotArgs& a, const RowGroups& layout, int64_t first,
                        int64_t apart) {
  DotTile<Type, R, true> tile;
  tile.near = a.list.near;
  for (int r = 0; r < R; ++r) {
    tile.rows[r] = RowAt(a.list, first + r * apart);
    tile.ahead[r] = RowAhead(a.list, first + r * apart, 1);
    tile.sums[r] = hn::Zero(kFloats);
  }
  ForLanesOfRow(
      layout, [&]<bool kWhole>(const GroupPlace& at, int64_t g, int64_t lane, int64_t n)
                  HEARTH_INLINED HWY_ATTR { tile.template AddLanes<kWhole>(at, a.x[g], lane, n); });
  for (int r = 0; r < R; ++r) {
    FetchScalesAhead<Type>(tile.ahead[r], tile.near, layout, 0, layout.groups);
    a.out[first + r * apart] = hn::GetLane(hn::SumOfLanes(kFloats, tile.sums[r]));
  }
}

// The same, section by section, each of which is loaded first.
template <class Type, int R>
HWY_INLINE void DotLoadedRows(const RowDotArgs& a, const RowGroups& layout, int64_t first,
                              int64_t apart) {
  DotTile<Type, R, false> tile;
  for (int r = 0; r < R; ++r) {
    tile.rows[r] = RowAt(a.list, first + r * apart);
    tile.sums[r] = hn::Zero(kFloats);
  }
  for (int64_t begin = 0; begin < layout.groups; begin += kGroupsOfSection<Type>) {
    const int64_t left = layout.groups - begin;
    const int64_t end = begin + (left < kGroupsOfSection<Type> ? left : kGroupsOfSection<Type>);
    LoadSection<Type>(tile.rows, layout, begin, end);
    for (int r = 0; r < R; ++r) {
      tile.ahead[r] = end < layout.groups ? tile.rows[r] + end * layout.group_bytes
                                          : RowAhead(a.list, first + r * apart, 1);
    }
    int64_t asked = 0;
    ForLanesOfGroups(layout, begin, end,
                     [&]<bool kWhole>(const GroupPlace& at, int64_t g, int64_t lane, int64_t n)
                         HEARTH_INLINED HWY_ATTR {
                           if (lane == 0) {
                             FetchLines<Type::kLines / kLinesPerRequest>(tile.ahead, asked);
                             asked += Type::kLines / kLinesPerRequest * kLineBytes;
                           }
                           tile.template AddLanes<kWhole>(at, a.x[g], lane, n);
                         });
  }
  for (int r = 0; r < R; ++r) {
    a.out[first + r * apart] = hn::GetLane(hn::SumOfLanes(kFloats, tile.sums[r]));
  }
}

// Calls dot(first, apart) for R rows of list[begin, count) at once: as many streams, each through a
// part of it, so that where all rows are listed each reads memory without a gap. Returns the first
// row that is left, of fewer than R.
template <int R, class Dot>
HWY_INLINE int64_t ForParts(int64_t begin, int64_t count, Dot dot) {
  const int64_t apart = (count - begin) / R;
  for (int64_t i = 0; i < apart; ++i) dot(begin + i, apart);
  return begin + apart * R;
}

template <class Type>
void RowDot(const RowDotArgs& a) noexcept {
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  const int64_t count = a.list.count;
  int64_t begin = 0;
  if constexpr (kHasLoadedDot) {
    if (a.loads_first) {
      begin = ForParts<kRowsOfLoadedDot>(
          begin, count, [&](int64_t first, int64_t apart) HEARTH_INLINED HWY_ATTR {
            DotLoadedRows<Type, kRowsOfLoadedDot>(a, layout, first, apart);
          });
    }
  }
  begin =
      ForParts<kRowsOfDot>(begin, count, [&](int64_t first, int64_t apart) HEARTH_INLINED HWY_ATTR {
        DotRows<Type, kRowsOfDot>(a, layout, first, apart);
      });
  if (begin == count) return;
  WithCount<kRowsOfDot - 1>(count - begin,
                            [&]<int R>() HEARTH_INLINED { DotRows<Type, R>(a, layout, begin, 1); });
}

// The sums of a group while rows are added to them: lane b of sums[i] is weight i of block b.
struct GroupSums {
  float sums[32][kLineLanes];
};

// Transposes 4x4 floats in every 128 bits of four vectors.
HWY_INLINE void TransposeQuads(FloatVec (&v)[4]) {
  const hn::Repartition<uint64_t, FloatTag> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(kFloats, v[0], v[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(kFloats, v[2], v[3]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(kFloats, v[0], v[1]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(kFloats, v[2], v[3]));
  v[0] = hn::BitCast(kFloats, hn::InterleaveLower(pairs, low01, low23));
  v[1] = hn::BitCast(kFloats, hn::InterleaveUpper(pairs, low01, low23));
  v[2] = hn::BitCast(kFloats, hn::InterleaveLower(pairs, high01, high23));
  v[3] = hn::BitCast(kFloats, hn::InterleaveUpper(pairs, high01, high23));
}

// Between weights 4q..4q+3 of block b as columns of lane b and the same as a row of four floats in
// place [4q + b % 4][b / 4 * 4]: its own inverse, and what makes lanes of plain copies.
inline void TransposeSums(GroupSums& group) {
  for (int first = 0; first < 32; first += 4) {
    for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
      FloatVec v[4];
      for (int i = 0; i < 4; ++i) v[i] = hn::LoadU(kFloats, group.sums[first + i] + lane);
      TransposeQuads(v);
      for (int i = 0; i < 4; ++i) hn::StoreU(v[i], kFloats, group.sums[first + i] + lane);
    }
  }
}

inline constexpr size_t kQuadOfFloats = 4 * sizeof(float);

inline void LoadSums(const float* out, int64_t blocks, GroupSums& group) {
  if (blocks < kLineLanes) __builtin_memset(&group, 0, sizeof(group));
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < 32; i += 4) {
      __builtin_memcpy(group.sums[i + b % 4] + b / 4 * 4, out + 32 * b + i, kQuadOfFloats);
    }
  }
  TransposeSums(group);
}

inline void StoreSums(GroupSums& group, int64_t blocks, float* out) {
  TransposeSums(group);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < 32; i += 4) {
      __builtin_memcpy(out + 32 * b + i, group.sums[i + b % 4] + b / 4 * 4, kQuadOfFloats);
    }
  }
}

// Adds lanes [lane, lane + n) of a group of all rows; n as in DotTile.
template <class Type, bool kWhole>
HWY_INLINE void AddLanes(const RowBatch& batch, const GroupPlace& at, int64_t lane, int64_t n,
                         GroupSums& group) {
  LaneScales<Type> scales[kRowsOfSum];
  for (int r = 0; r < batch.count; ++r) {
    scales[r].template Load<kWhole>(batch.rows[r], at, lane, n);
    scales[r].Multiply(hn::Set(kFloats, batch.a[r]));
  }
  const int64_t line_bytes = (kWhole ? kLineLanes : at.lanes) * kRowLaneBytes;
  for (int line = 0; line < Type::kLines; ++line) {
    const int64_t offset = at.codes + line * line_bytes + lane * kRowLaneBytes;
    const int first = line * Type::kCodes;
    FloatVec sums[Type::kCodes];
    for (int i = 0; i < Type::kCodes; ++i) {
      sums[i] = hn::LoadU(kFloats, group.sums[first + i] + lane);
    }
    for (int r = 0; r < batch.count; ++r) {
      if (lane == 0) FetchAhead(batch.ahead[r] + offset, batch.near);
      const Bytes codes = LoadQuads<kWhole>(batch.rows[r] + offset, n);
      Type::ForCodes(codes, [&](int i, FloatVec code)
                                HWY_ATTR { sums[i] = scales[r].AddCode(sums[i], code); });
    }
    for (int i = 0; i < Type::kCodes; ++i) {
      hn::StoreU(sums[i], kFloats, group.sums[first + i] + lane);
    }
  }
}

template <class Type>
void AddBatch(const RowBatch& batch, const GroupPlace& at, GroupSums& group) {
  if (at.lanes == kLineLanes) {
    for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
      AddLanes<Type, true>(batch, at, lane, kLanes, group);
    }
    return;
  }
  for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
    const int64_t n = at.lanes - lane < kLanes ? at.lanes - lane : kLanes;
    AddLanes<Type, false>(batch, at, lane, n, group);
  }
}

// At most kGroupsOfSum groups.
template <class Type>
void AddRowsToGroups(const RowScaledAddArgs& a, const RowGroups& layout, int64_t begin,
                     int64_t end) {
  alignas(64) GroupSums groups[kGroupsOfSum];
  const auto blocks_of = [&layout](int64_t g) {
    const int64_t left = layout.blocks - g * kLineLanes;
    return left < kLineLanes ? left : kLineLanes;
  };
  for (int64_t g = begin; g < end; ++g) {
    LoadSums(a.out + g * kRowGroupWeights, blocks_of(g), groups[g - begin]);
  }
  for (int64_t i = 0; i < a.list.count; i += kRowsOfSum) {
    const RowBatch batch = BatchOf(a.list, a.a, i);
    for (int64_t g = begin; g < end; ++g) {
      AddBatch<Type>(batch, PlaceOf(layout, g), groups[g - begin]);
    }
    for (int r = 0; r < batch.count; ++r) {
      FetchScalesAhead<Type>(batch.ahead[r], batch.near, layout, begin, end);
    }
  }
  for (int64_t g = begin; g < end; ++g) {
    StoreSums(groups[g - begin], blocks_of(g), a.out + g * kRowGroupWeights);
  }
}

template <class Type>
void RowScaledAdd(const RowScaledAddArgs& a) noexcept {
  if (a.list.count == 0) return;
  const RowGroups layout = RowGroupsOf(Type::kDType, a.k);
  for (int64_t begin = a.group_begin; begin < a.group_end; begin += kGroupsOfSum) {
    const int64_t end = a.group_end - begin < kGroupsOfSum ? a.group_end : begin + kGroupsOfSum;
    AddRowsToGroups<Type>(a, layout, begin, end);
  }
}

inline void QuantizeQ8Groups(const float* x, int64_t n, GroupQ8* out) noexcept {
  for (int64_t b = 0; b < n / 32; ++b) {
    GroupQ8& group = out[b / kLineLanes];
    const int64_t lane = b % kLineLanes;
    if (lane == 0) __builtin_memset(&group, 0, sizeof(group));
    BlockQ8 block;
    QuantizeBlock(x + 32 * b, &block);
    for (int quad = 0; quad < 8; ++quad) {
      __builtin_memcpy(group.codes[quad] + 4 * lane, block.codes + 4 * quad, 4);
    }
    group.scales[lane] = block.scale;
    group.sums[lane] = block.minus_8_sum / -8;
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
