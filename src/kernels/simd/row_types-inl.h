// Weight types of bundle rows (tensor/row_groups.h): what their lines, scales and minimums hold,
// and what becomes of them in a sum.
//
// A lane of a vector is one block throughout: its codes, its scale and its sums. That makes the
// kernels the same for every vector length, and the result of a lane independent of the others.
#pragma once

#include <type_traits>

#include "kernels/simd/narrow-inl.h"
#include "kernels/simd/quads-inl.h"
#include "tensor/row_groups.h"

namespace hearth::kernels::HEARTH_ISA {

static_assert(kRowGroupBlocks == kLineLanes);

// The first n of kLanes lanes of 32 bits, zeros in the others.
template <bool kWhole>
HWY_INLINE Bytes LoadQuads(const uint8_t* p, int64_t n) {
  if constexpr (kWhole) return LoadBytes(p);
  if (n == kLanes) return LoadBytes(p);
  const void* at = p;
  return hn::BitCast(ByteTag(), LoadFirst(kFloats, static_cast<const float*>(at), n));
}

// The first n of kLanes binary16 numbers as floats, zeros in the other lanes.
template <bool kWhole>
HWY_INLINE FloatVec LoadScales(const uint8_t* p, int64_t n) {
  if constexpr (kWhole) return LoadHalves(p);
  if (n == kLanes) return LoadHalves(p);
  const void* at = p;
  const auto bits = LoadFirst(HalfBitsTag(), static_cast<const uint16_t*>(at), n);
  return hn::PromoteTo(kFloats, hn::BitCast(HalfTag(), bits));
}

// A line's 4-bit codes as NibbleToFloat takes them. Where it has no table, codes that stand for 8
// less (kSigned) become what they stand for, in two's complement: each code's top bit is flipped.
template <bool kSigned>
HWY_INLINE IntVec NibblesToConvert(Bytes line) {
  const IntVec codes = hn::BitCast(IntTag(), line);
  if constexpr (kLanes == 16 || !kSigned) return codes;
  return hn::Xor(codes, hn::Set(IntTag(), static_cast<int32_t>(0x88888888u)));
}

// What code n of every lane stands for: the code less 8 (kSigned), or the code itself.
template <int n, bool kSigned>
HWY_INLINE FloatVec NibbleToFloat(IntVec codes) {
  if constexpr (kLanes == 16) {
    // A vector holds all that a code can stand for, and the look-up ignores the bits above it.
    const auto index = hn::IndicesFromVec(kFloats, hn::ShiftRight<4 * n>(codes));
    // (Not Highway's Iota, which the linker would share between instruction sets.)
    HWY_ALIGN static constexpr float kUnsignedCodes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                           8, 9, 10, 11, 12, 13, 14, 15};
    const FloatVec values = hn::Load(kFloats, kUnsignedCodes);
    const FloatVec offset = hn::Set(kFloats, kSigned ? 8.0f : 0.0f);
    return hn::TableLookupLanes(hn::Sub(values, offset), index);
  } else {
    using Bits = std::conditional_t<kSigned, IntTag, hn::RebindToUnsigned<IntTag>>;
    const auto top = hn::BitCast(Bits(), hn::ShiftLeft<28 - 4 * n>(codes));
    return hn::ConvertTo(kFloats, hn::BitCast(IntTag(), hn::ShiftRight<28>(top)));
  }
}

template <int n>
HWY_INLINE FloatVec ByteToFloat(IntVec codes) {
  return hn::ConvertTo(kFloats, hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * n>(codes)));
}

// A weight type: what a line of a group (one vector of it) holds.
template <bool kSigned>
struct NibbleRows {
  static constexpr int kLines = 4;
  static constexpr int kCodes = 8;  // per lane
  static constexpr int32_t kOffset = kSigned ? kOffsetQ4_0 : 0;

  // Adds a line's products. x: the vector's part of the first of the activation quads it meets.
  using Sums = NibbleSums;
  static HWY_INLINE void AddLine(Sums& sums, Bytes w, const int8_t* x) {
    sums.Add(LowNibbles(w), LoadBytes(x));
    sums.Add(HighNibbles(w), LoadBytes(x + kLineBytes));
  }

  // add(i, code i of the line)
  template <class Add>
  static HWY_INLINE void ForCodes(Bytes w, Add add) {
    const IntVec codes = NibblesToConvert<kSigned>(w);
    add(0, NibbleToFloat<0, kSigned>(codes));
    add(4, NibbleToFloat<1, kSigned>(codes));
    add(1, NibbleToFloat<2, kSigned>(codes));
    add(5, NibbleToFloat<3, kSigned>(codes));
    add(2, NibbleToFloat<4, kSigned>(codes));
    add(6, NibbleToFloat<5, kSigned>(codes));
    add(3, NibbleToFloat<6, kSigned>(codes));
    add(7, NibbleToFloat<7, kSigned>(codes));
  }
};
struct Q4_0Rows : NibbleRows<true> {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr bool kHasMinimum = false;
};
struct Q4_1Rows : NibbleRows<false> {
  static constexpr DType kDType = DType::kQ4_1;
  static constexpr bool kHasMinimum = true;
};

struct Q8_0Rows {
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr bool kHasMinimum = false;
  static constexpr int kLines = 8;
  static constexpr int kCodes = 4;
  static constexpr int32_t kOffset = kOffsetQ8_0;

  using Sums = WideSums<DotQ8_0>;
  static HWY_INLINE void AddLine(Sums& sums, Bytes w, const int8_t* x) {
    sums.Add(PrepareQ8_0(w), LoadBytes(x));
  }

  template <class Add>
  static HWY_INLINE void ForCodes(Bytes w, Add add) {
    const IntVec codes = hn::BitCast(IntTag(), w);
    add(0, ByteToFloat<0>(codes));
    add(1, ByteToFloat<1>(codes));
    add(2, ByteToFloat<2>(codes));
    add(3, ByteToFloat<3>(codes));
  }
};

// What the sums of products of codes as they are stored start from, given the sums of the
// activation codes: it takes off what the codes' offset makes too much.
template <class Type>
HWY_INLINE IntVec StartOfDots(IntVec code_sums) {
  return hn::Mul(code_sums, hn::Set(IntTag(), -Type::kOffset));
}

// A group within a row.
struct GroupPlace {
  int64_t lanes;  // of a line
  int64_t codes;
  int64_t scales;
  int64_t minimums;
};
HWY_INLINE GroupPlace PlaceOf(const RowGroups& row, int64_t group) {
  const int64_t first = group * kLineLanes;
  const int64_t lanes = row.lanes - first < kLineLanes ? row.lanes - first : kLineLanes;
  return {lanes, group * row.group_bytes, row.scales + 2 * first, row.minimums + 2 * first};
}

// The scales (minimums) of some lanes of a row, and what becomes of codes with them. All kernels
// for rows add up through these: that is what makes their bits equal.
template <class Type>
struct LaneScales {
  FloatVec scale;
  FloatVec minimum;  // only where Type::kHasMinimum

  // The first n of kLanes lanes; n = kLanes unless the group is short.
  template <bool kWhole>
  HWY_INLINE void Load(const uint8_t* row, const GroupPlace& at, int64_t lane, int64_t n) {
    scale = LoadScales<kWhole>(row + at.scales + 2 * lane, n);
    if constexpr (Type::kHasMinimum) {
      minimum = LoadScales<kWhole>(row + at.minimums + 2 * lane, n);
    }
  }

  HWY_INLINE void Multiply(FloatVec factor) {
    scale = hn::Mul(factor, scale);
    if constexpr (Type::kHasMinimum) minimum = hn::Mul(factor, minimum);
  }

  HWY_INLINE FloatVec AddCode(FloatVec sum, FloatVec code) const {
    if constexpr (Type::kHasMinimum) return hn::Add(sum, hn::MulAdd(code, scale, minimum));
    return hn::MulAdd(code, scale, sum);
  }

  // dots: products of codes; code_sums and x_scale: of the activations.
  HWY_INLINE FloatVec AddDots(FloatVec sum, IntVec dots, IntVec code_sums, FloatVec x_scale) const {
    sum = hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, dots), x_scale), scale, sum);
    if constexpr (Type::kHasMinimum) {
      sum = hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, code_sums), x_scale), minimum, sum);
    }
    return sum;
  }
};

// Calls part.template operator()<kWhole>(place, group, lane, n) with the vectors of all lanes of
// groups [begin, end) of a row: lanes [lane, lane + n), n = kLanes unless the group is short.
template <class Part>
HWY_INLINE void ForLanesOfGroups(const RowGroups& layout, int64_t begin, int64_t end, Part part) {
  const int64_t all_whole = layout.lanes / kLineLanes;
  const int64_t whole = end < all_whole ? end : all_whole;
  for (int64_t g = begin; g < whole; ++g) {
    const GroupPlace at = PlaceOf(layout, g);
    for (int64_t lane = 0; lane < kLineLanes; lane += kLanes) {
      part.template operator()<true>(at, g, lane, kLanes);
    }
  }
  if (whole == end) return;
  const GroupPlace at = PlaceOf(layout, whole);
  for (int64_t lane = 0; lane < at.lanes; lane += kLanes) {
    const int64_t left = at.lanes - lane;
    part.template operator()<false>(at, whole, lane, left < kLanes ? left : kLanes);
  }
}
// The same for all groups.
template <class Part>
HWY_INLINE void ForLanesOfRow(const RowGroups& layout, Part part) {
  ForLanesOfGroups(layout, 0, layout.groups, part);
}

}  // namespace hearth::kernels::HEARTH_ISA
