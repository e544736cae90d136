// Parts of bundle rows as kernels for many tokens have them: lines of codes that are ready to be
// multiplied, sums of their products, and scales of some rows.
#pragma once

#include "kernels/simd/row_list-inl.h"
#include "kernels/simd/row_types-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Whether products of high nibbles are added up 16 times as large, which takes no shift per line:
// where they are exact for any unsigned byte.
template <class Type>
inline constexpr bool kNibblesStayHigh = Type::kLines == 4 && kOffsetQ8_0 == 128;

// What is multiplied with the activation quads that a line of codes meets: one, or two of nibbles.
template <class Type>
struct LineQuads {
  static constexpr int kQuads = 8 / Type::kLines;
  Bytes low;
  Bytes high;  // only of nibbles: for LaneDots::AddHigh

  HWY_INLINE explicit LineQuads(Bytes line) {
    if constexpr (kQuads == 1) {
      low = PrepareQ8_0(line);
    } else {
      low = LowNibbles(line);
      high = kNibblesStayHigh<Type> ? hn::And(line, hn::Set(ByteTag(), uint8_t{0xF0}))
                                    : HighNibbles(line);
    }
  }
};

// The products of a group's codes, lane by lane.
template <class Type>
class LaneDots {
 public:
  // `start`: see StartOfDots.
  HWY_INLINE void Start(IntVec start) {
    dots_.Start(start);
    if constexpr (kNibblesStayHigh<Type>) high_.Start(hn::Zero(IntTag()));
  }

  HWY_INLINE void AddLow(Bytes quad, Bytes x) { dots_.Add(quad, x); }
  HWY_INLINE void AddHigh(Bytes quad, Bytes x) {
    if constexpr (kNibblesStayHigh<Type>) {
      high_.Add(quad, x);
    } else {
      dots_.Add(quad, x);
    }
  }

  HWY_INLINE IntVec Total() const {
    if constexpr (kNibblesStayHigh<Type>) {
      return hn::Add(dots_.Total(), hn::ShiftRight<4>(high_.Total()));
    } else {
      return dots_.Total();
    }
  }

 private:
  typename Type::Sums dots_;
  WideSums<DotQuads> high_;  // only where kNibblesStayHigh
};

// The scales of some lanes of the rows of a list.
template <class Type>
struct ScalesOfRows {
  HWY_ALIGN float scales[kRowsOfSums][kLanes];
  HWY_ALIGN float minimums[Type::kHasMinimum ? kRowsOfSums : 1][kLanes];

  HWY_INLINE void Unpack(const RowList& list, const GroupPlace& at, int64_t lane, int64_t n) {
    for (int64_t r = 0; r < list.count; ++r) {
      LaneScales<Type> of_row;
      of_row.template Load<false>(RowAt(list, r), at, lane, n);
      hn::Store(of_row.scale, kFloats, scales[r]);
      if constexpr (Type::kHasMinimum) hn::Store(of_row.minimum, kFloats, minimums[r]);
    }
  }

  // Those of row r, times a factor.
  HWY_INLINE LaneScales<Type> Times(float factor, int64_t r) const {
    LaneScales<Type> of_row;
    of_row.scale = hn::Load(kFloats, scales[r]);
    if constexpr (Type::kHasMinimum) of_row.minimum = hn::Load(kFloats, minimums[r]);
    of_row.Multiply(hn::Set(kFloats, factor));
    return of_row;
  }
};

// Where the first token's sums of a line begin, from `lane` on.
template <class Type>
HWY_INLINE float* SumsOfLine(const RowsToSumsArgs& a, int line, int64_t lane) {
  const int64_t weight = line * Type::kCodes;
  return a.sums + weight / kQuarterWeights * a.tokens * kQuarterSums +
         weight % kQuarterWeights * kLineLanes + lane;
}

}  // namespace hearth::kernels::HEARTH_ISA
