// Weight types of tiles (tensor/weight_tiles.h): what their codes, scales and minimums are
// multiplied as.
//
// A type has
//   kDType     its row of kTileFormats
//   kOffset    codes stand for less by this than what they are multiplied as
//   Sums       DotQuads of the quads of a block, or of a part of it
//   MapCodes   codes as they lie in a tile to what they are multiplied as
// A block of 32 columns has a scale, or two for its halves. What belongs to one scale is a part:
// its integer sums are exact, and start from what the offset makes too much (kernel_table.h,
// BlockQ8).
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/quads-inl.h"
#include "kernels/simd/tile_parts-inl.h"
#include "kernels/weight_tables.h"

namespace hearth::kernels::HEARTH_ISA {

// Unsigned codes as they are. The products of two neighbours fit 16 bits
// (kernels/x86/pair_sums-inl.h).
template <DType dtype, class SumsOfType, int32_t offset>
struct UnsignedTiles {
  using Sums = SumsOfType;
  static constexpr DType kDType = dtype;
  static constexpr int32_t kOffset = offset;
  static HWY_INLINE Bytes MapCodes(Bytes codes) { return codes; }
};

using Q4_0Tiles = UnsignedTiles<DType::kQ4_0, NibbleSums, kOffsetQ4_0>;
using Q4_1Tiles = UnsignedTiles<DType::kQ4_1, NibbleSums, 0>;
using Q5_0Tiles = UnsignedTiles<DType::kQ5_0, WideSums<DotQuads>, 16>;
using Q5_1Tiles = UnsignedTiles<DType::kQ5_1, WideSums<DotQuads>, 0>;
using Q2_KTiles = UnsignedTiles<DType::kQ2_K, NibbleSums, 0>;
using Q3_KTiles = UnsignedTiles<DType::kQ3_K, NibbleSums, 4>;
using Q4_KTiles = UnsignedTiles<DType::kQ4_K, NibbleSums, 0>;
using Q5_KTiles = UnsignedTiles<DType::kQ5_K, WideSums<DotQuads>, 0>;
using Q6_KTiles = UnsignedTiles<DType::kQ6_K, WideSums<DotQuads>, 32>;

struct Q8_0Tiles {
  using Sums = WideSums<DotQ8_0>;
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr int32_t kOffset = kOffsetQ8_0;
  static HWY_INLINE Bytes MapCodes(Bytes codes) { return PrepareQ8_0(codes); }
};

// Codes of 4 bits that stand for signed values of a table, which are offset to be unsigned.
template <int32_t offset>
struct CodeTable {
  HWY_ALIGN uint8_t values[16];

  constexpr explicit CodeTable(const int8_t (&from)[16]) : values{} {
    for (int i = 0; i < 16; ++i) values[i] = static_cast<uint8_t>(from[i] + offset);
  }
  HWY_INLINE Bytes Map(Bytes codes) const {
    return hn::TableLookupBytes(hn::LoadDup128(ByteTag(), values), codes);
  }
};
inline constexpr CodeTable<kOffsetQ8_0> kIq4NlTable(kIq4NlValues);
inline constexpr CodeTable<16> kMxfp4Table(kMxfp4DoubledValues);

struct IQ4_NLTiles {
  using Sums = WideSums<DotQ8_0>;
  static constexpr DType kDType = DType::kIQ4_NL;
  static constexpr int32_t kOffset = kOffsetQ8_0;
  static HWY_INLINE Bytes MapCodes(Bytes codes) { return kIq4NlTable.Map(codes); }
};

struct MXFP4Tiles {
  using Sums = WideSums<DotQuads>;
  static constexpr DType kDType = DType::kMXFP4;
  static constexpr int32_t kOffset = 16;
  static HWY_INLINE Bytes MapCodes(Bytes codes) { return kMxfp4Table.Map(codes); }
};

struct NVFP4Tiles {
  using Sums = WideSums<DotQuads>;
  static constexpr DType kDType = DType::kNVFP4;
  static constexpr int32_t kOffset = 16;
  static HWY_INLINE Bytes MapCodes(Bytes codes) { return kMxfp4Table.Map(codes); }
};

struct IQ4_XSTiles {
  using Sums = WideSums<DotQ8_0>;
  static constexpr DType kDType = DType::kIQ4_XS;
  static constexpr int32_t kOffset = kOffsetQ8_0;
  static HWY_INLINE Bytes MapCodes(Bytes codes) { return kIq4NlTable.Map(codes); }
};

// Stored blocks, once unpacked (kernels/stored/unpack.h).
template <DType dtype>
struct StoredTiles {
  using Sums = WideSums<DotQuads>;
  static constexpr DType kDType = dtype;
  static constexpr int32_t kOffset = TileFormatOf(dtype).code_offset;
  static_assert(2 * 127 * 127 <= 32767, "codes less than 128 have products that fit");
};

template <class Codes>
inline constexpr TileFormat kFormatOf = TileFormatOf(Codes::kDType);
template <class Codes>
inline constexpr int kPartsOf = kFormatOf<Codes>.scales_of_block;
template <class Codes>
inline constexpr int kQuadsOfPart = kQuadsOfBlock / kPartsOf<Codes>;
template <class Codes>
inline constexpr bool kIsStored = kFormatOf<Codes>.scales == TileScales::kStored;
template <class Codes>
inline constexpr bool kHasMinimums = kFormatOf<Codes>.has_minimums;
inline constexpr int kMaxParts = 2;

// -8 times the sum of a part's activations.
template <class Codes, int kPart>
HWY_INLINE int32_t Minus8Sum(const BlockQ8& x) {
  if constexpr (kPartsOf<Codes> == 1) return x.minus_8_sum;
  if constexpr (kPart == 0) return x.minus_8_sum_of_first;
  return x.minus_8_sum - x.minus_8_sum_of_first;
}

// What the integer sums of a part start from.
template <class Codes, int kPart>
HWY_INLINE IntVec StartOfSums(const BlockQ8& x) {
  if constexpr (Codes::kOffset == 0) {
    return hn::Zero(IntTag());
  } else if constexpr (Codes::kOffset % 8 == 0) {
    return hn::Set(IntTag(), Minus8Sum<Codes, kPart>(x) * (Codes::kOffset / 8));
  } else {
    return hn::Set(IntTag(), Minus8Sum<Codes, kPart>(x) * Codes::kOffset / 8);
  }
}

// What a minimum is multiplied with: the sum of the token's activations in real units.
template <class Codes, int kPart>
HWY_INLINE float RealSum(const BlockQ8& x) {
  if constexpr (kPartsOf<Codes> == 1) return x.sum;
  return x.scale * (-0.125f * static_cast<float>(Minus8Sum<Codes, kPart>(x)));
}

// The lanes' bits moved up by n, or down by -n; what crosses the bounds of bytes is the caller's to
// mask.
template <int n>
HWY_INLINE Bytes ShiftBits(Bytes v) {
  const hn::Repartition<uint16_t, FloatTag> pairs;
  if constexpr (n == 0) return v;
  if constexpr (n > 0) return hn::BitCast(ByteTag(), hn::ShiftLeft<n>(hn::BitCast(pairs, v)));
  return hn::BitCast(ByteTag(), hn::ShiftRight < n < 0 ? -n : 1 > (hn::BitCast(pairs, v)));
}

// Vector v of quad q's two bits in a plane of such, shifted to `position` of every byte.
template <int q, int position>
HWY_INLINE Bytes TwoBits(const uint8_t* plane, int v) {
  const Bytes line = LoadBytes(plane + q / 4 * kLineBytes + v * kVectorBytes);
  const Bytes mask = hn::Set(ByteTag(), static_cast<uint8_t>(3 << position));
  return hn::And(ShiftBits<position - q % 4 * 2>(line), mask);
}

// The same of a plane of single bits.
template <int q, int position>
HWY_INLINE Bytes OneBit(const uint8_t* plane, int v) {
  const Bytes mask = hn::Set(ByteTag(), static_cast<uint8_t>(1 << position));
  return hn::And(ShiftBits<position - q>(LoadBytes(plane + v * kVectorBytes)), mask);
}

// Vector v of quad q of a block whose codes begin at `block`.
template <class Codes, int q>
HWY_INLINE Bytes QuadOf(const uint8_t* block, int v) {
  constexpr int kBits = kFormatOf<Codes>.code_bits;
  if constexpr (kBits == 8) {
    return Codes::MapCodes(LoadBytes(block + q * kLineBytes + v * kVectorBytes));
  } else if constexpr (kBits < 4) {
    Bytes codes = TwoBits<q, 0>(block, v);
    if constexpr (kBits == 3) codes = hn::Or(codes, OneBit<q, 2>(block + 2 * kLineBytes, v));
    return Codes::MapCodes(codes);
  } else {
    const Bytes both = LoadBytes(block + q / 2 * kLineBytes + v * kVectorBytes);
    Bytes codes = q % 2 == 0 ? LowNibbles(both) : HighNibbles(both);
    if constexpr (kBits == 5) codes = hn::Or(codes, OneBit<q, 4>(block + 4 * kLineBytes, v));
    if constexpr (kBits == 6) codes = hn::Or(codes, TwoBits<q, 4>(block + 4 * kLineBytes, v));
    return Codes::MapCodes(codes);
  }
}

// kLanes bytes at p as lanes of 32 bits.
HWY_INLINE IntVec LoadUnsigned(const uint8_t* p) {
  const hn::Rebind<uint8_t, FloatTag> d8;
  return hn::PromoteTo(IntTag(), hn::LoadU(d8, p));
}
HWY_INLINE IntVec LoadSigned(const uint8_t* p) {
  const hn::Rebind<int8_t, FloatTag> d8;
  return hn::PromoteTo(IntTag(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
}

// Half of the scales that are powers of two, of MXFP4's exponents (Mxfp4HalfScale). Below 2^-126
// they are subnormals: a single bit, which the exponent shifts.
HWY_INLINE FloatVec HalfPowers(IntVec exponents) {
  const IntVec normal = hn::ShiftLeft<23>(hn::Sub(exponents, hn::Set(IntTag(), 1)));
  const IntVec bit = hn::Set(IntTag(), 0x00200000);
  const auto is_zero = hn::Eq(exponents, hn::Zero(IntTag()));
  const IntVec small = hn::IfThenElse(is_zero, bit, hn::Add(bit, bit));
  const auto is_small = hn::Lt(exponents, hn::Set(IntTag(), 2));
  return hn::BitCast(kFloats, hn::IfThenElse(is_small, small, normal));
}

// Half of NVFP4's scales (Nvfp4HalfScale): their bits at the place of a float's, multiplied up.
HWY_INLINE FloatVec HalfSmallFloats(IntVec e4m3) {
  const IntVec bits = hn::ShiftLeft<20>(hn::And(e4m3, hn::Set(IntTag(), 0x7f)));
  const FloatVec scales = hn::Mul(hn::BitCast(kFloats, bits), hn::Set(kFloats, 0x1p119f));
  const auto is_nan = hn::RebindMask(kFloats, hn::Eq(e4m3, hn::Set(IntTag(), 0x7f)));
  return hn::IfThenZeroElse(is_nan, scales);
}

// Scale i = 0 .. 15 of a super block as Q3_K packs them: low nibbles in 8 bytes, two more bits
// in 4.
HWY_INLINE IntVec SixBitScales(const uint8_t* packed, int64_t i) {
  const IntVec low =
      hn::ShiftRightSame(LoadUnsigned(packed + i % 8 * kLineLanes), static_cast<int>(i / 8 * 4));
  const IntVec high = hn::ShiftRightSame(LoadUnsigned(packed + (8 + i % 4) * kLineLanes),
                                         static_cast<int>(i / 4 * 2));
  const IntVec code = hn::Or(hn::And(low, hn::Set(IntTag(), 15)),
                             hn::ShiftLeft<4>(hn::And(high, hn::Set(IntTag(), 3))));
  return hn::Sub(code, hn::Set(IntTag(), 32));
}

// What is multiplied with the factors of a super block to be the scales of a part.
template <class Codes, int kPart>
HWY_INLINE IntVec ScaleCodes(TileParts<Codes> parts, int64_t rows) {
  constexpr TileFormat kFormat = kFormatOf<Codes>;
  const uint8_t* bytes = parts.scales() + kPart * kLineLanes + rows;
  if constexpr (kFormat.scales == TileScales::kSixBits) {
    const uint8_t* packed = parts.group + kFormat.scales_begin() + rows;
    return SixBitScales(packed, parts.which * kPartsOf<Codes> + kPart);
  } else if constexpr (kFormat.scales == TileScales::kNibbles) {
    return hn::And(LoadUnsigned(bytes), hn::Set(IntTag(), 15));
  } else if constexpr (kFormat.is_signed_scale) {
    return LoadSigned(bytes);
  } else {
    return LoadUnsigned(bytes);
  }
}

// The scales of a part, or its minimums, of the rows of vector v. Exact: a factor has 11 bits, a
// code 8.
template <class Codes, int kPart>
HWY_INLINE FloatVec ScalesOf(TileParts<Codes> parts, int v) {
  constexpr TileFormat kFormat = kFormatOf<Codes>;
  const int64_t rows = v * kLanes;
  if constexpr (kFormat.scales == TileScales::kHalves) {
    return LoadHalves(parts.scales() + 2 * rows);
  } else if constexpr (kFormat.scales == TileScales::kPowers) {
    return HalfPowers(LoadUnsigned(parts.scales() + rows));
  } else if constexpr (kFormat.scales == TileScales::kSmallFloats) {
    return HalfSmallFloats(LoadUnsigned(parts.scales() + kPart * kLineLanes + rows));
  } else {
    return hn::Mul(LoadHalves(parts.group + 2 * rows),
                   hn::ConvertTo(kFloats, ScaleCodes<Codes, kPart>(parts, rows)));
  }
}
template <class Codes, int kPart>
HWY_INLINE FloatVec MinimumsOf(TileParts<Codes> parts, int v) {
  constexpr TileFormat kFormat = kFormatOf<Codes>;
  const int64_t rows = v * kLanes;
  if constexpr (kFormat.scales == TileScales::kHalves) {
    return LoadHalves(parts.minimums() + 2 * rows);
  } else {
    IntVec codes = LoadUnsigned(parts.minimums() + kPart * kLineLanes + rows);
    if constexpr (kFormat.scales == TileScales::kNibbles) codes = hn::ShiftRight<4>(codes);
    return hn::Mul(LoadHalves(parts.group + TileFormat::kHalvesBytes + 2 * rows),
                   hn::ConvertTo(kFloats, codes));
  }
}

// Asks for a block's lines of codes and for one of its group's head, in the group that lies
// `distance` bytes ahead. It may lie past the weights, where this does nothing. Into the
// first-level cache where kNear, else into the second-level one.
template <class Codes, bool kNear = false>
HWY_INLINE void FetchBlockAhead(TileParts<Codes> parts, uintptr_t distance) {
  using Parts = TileParts<Codes>;
  const uintptr_t codes = reinterpret_cast<uintptr_t>(parts.codes()) + distance;
  for (int line = 0; line < kFormatOf<Codes>.code_bits; ++line) {
    FetchAhead(reinterpret_cast<const void*>(codes + line * kLineBytes), kNear);
  }
  static_assert(Parts::kCodesBegin <= Parts::kGroupBlocks * kLineBytes, "a line for each block");
  const uintptr_t head = reinterpret_cast<uintptr_t>(parts.group) + distance;
  FetchAhead(reinterpret_cast<const void*>(head + parts.which * kLineBytes), kNear);
}

}  // namespace hearth::kernels::HEARTH_ISA
