// From float to the codes of the KV cache (KvEncoders, kernels/kv_ranges.h): the scalar table's
// operations one by one, so that the bits are the same.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/kv_types-inl.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Least and largest of some numbers, and the bits of the largest magnitude: as integers they are
// ordered alike, with infinity and NaN on top.
struct Extremes {
  float least;
  float largest;
  uint32_t largest_bits;
};

// Of n >= 1 floats. Where NaN is among them, least and largest mean nothing.
HWY_INLINE Extremes ExtremesOf(const float* x, int64_t n) {
  const IntTag di;
  const auto magnitude_bits = hn::Set(di, 0x7fffffff);
  FloatVec least = hn::Set(kFloats, x[0]);
  FloatVec largest = least;
  auto magnitude = hn::Zero(di);
  const auto add = [&](FloatVec v) HEARTH_INLINED {
    least = hn::Min(least, v);
    largest = hn::Max(largest, v);
    magnitude = hn::Max(magnitude, hn::And(hn::BitCast(di, v), magnitude_bits));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add(hn::LoadU(kFloats, x + i));
  if (i < n) {
    const auto used = hn::FirstN(kFloats, static_cast<size_t>(n - i));
    add(hn::IfThenElse(used, LoadFirst(kFloats, x + i, n - i), hn::Set(kFloats, x[0])));
  }
  return {hn::GetLane(hn::MinOfLanes(kFloats, least)),
          hn::GetLane(hn::MaxOfLanes(kFloats, largest)),
          static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, magnitude)))};
}

// Calls encode(vector) for n floats, kLanes at a time, and stores the codes that it gives.
template <class F>
HWY_INLINE void StoreCodes(const float* x, int64_t n, uint8_t* out, const F& encode) {
  const CodeTag d8;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d8, encode(hn::LoadU(kFloats, x + i))), d8, out + i);
  }
  if (i == n) return;
  const auto codes = hn::DemoteTo(d8, encode(LoadFirst(kFloats, x + i, n - i)));
  StoreFirst(codes, d8, out + i, n - i);
}

inline KeyCodeSums SumsOfKeyCodes(const KeyCodesToTry& a) noexcept {
  const IntTag di;
  auto codes = hn::Zero(di), squares = hn::Zero(di), units = hn::Zero(di), products = hn::Zero(di);
  const FloatVec least = hn::Set(kFloats, a.least), of_one = hn::Set(kFloats, a.units);
  const FloatVec zero = hn::Set(kFloats, a.zero), inverse = hn::Set(kFloats, a.inverse);
  const auto most = hn::Set(di, static_cast<int32_t>(a.most_code));
  const auto add = [&](FloatVec x, auto used) HEARTH_INLINED {
    const auto unit = hn::NearestInt(hn::Mul(hn::Sub(x, least), of_one));
    const FloatVec at = hn::Mul(hn::Sub(hn::ConvertTo(kFloats, unit), zero), inverse);
    const auto cut = hn::Min(hn::Max(hn::NearestInt(at), hn::Zero(di)), most);
    const auto code = hn::IfThenElseZero(used, cut);
    codes = hn::Add(codes, code);
    squares = hn::Add(squares, hn::Mul(code, code));
    units = hn::Add(units, hn::IfThenElseZero(used, unit));
    products = hn::Add(products, hn::Mul(code, unit));
  };
  int64_t i = 0;
  const auto all = hn::FirstN(di, kLanes);
  for (; i + kLanes <= a.n; i += kLanes) add(hn::LoadU(kFloats, a.x + i), all);
  if (i < a.n) {
    add(LoadFirst(kFloats, a.x + i, a.n - i), hn::FirstN(di, static_cast<size_t>(a.n - i)));
  }
  return {hn::GetLane(hn::SumOfLanes(di, codes)), hn::GetLane(hn::SumOfLanes(di, squares)),
          hn::GetLane(hn::SumOfLanes(di, units)), hn::GetLane(hn::SumOfLanes(di, products))};
}

inline KeyRange KeyRangeOf(const float* x, int64_t n, int32_t most_code) noexcept {
  const Extremes e = ExtremesOf(x, n);
  const KeyRange whole = RangeOfKey(e.least, e.largest, e.largest_bits, most_code);
  if (most_code > kMostNearestCode) return whole;
  return NearestRangeOfKey(x, n, e.least, e.largest, whole, SumsOfKeyCodes);
}

inline void KeyCodes(const float* x, int64_t n, const KeyRange& range, uint8_t* out) noexcept {
  if (range.inverse == 0) {
    __builtin_memset(out, 0, static_cast<size_t>(n));
    return;
  }
  const FloatVec zero = hn::Set(kFloats, range.zero_value);
  const FloatVec inverse = hn::Set(kFloats, range.inverse);
  const FloatVec most = hn::Set(kFloats, range.most_code);
  StoreCodes(x, n, out, [&](FloatVec v) HEARTH_INLINED {
    const FloatVec code = hn::Mul(hn::Sub(v, zero), inverse);
    return hn::NearestInt(hn::Min(hn::Max(code, hn::Zero(kFloats)), most));
  });
}

// FloatToFp8 of tensor/fp8.h.
HWY_INLINE IntVec Fp8Codes(FloatVec v) {
  const IntTag di;
  constexpr int32_t kBiasDifference = (127 - 7) << 3;
  const auto bits = hn::BitCast(di, v);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const FloatVec size = hn::BitCast(kFloats, magnitude);
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(di, 1));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, 0x7ffff)), odd);
  const auto normal = hn::Sub(hn::ShiftRight<20>(rounded), hn::Set(di, kBiasDifference));
  const auto small = hn::NearestInt(hn::Mul(size, hn::Set(kFloats, 512.0f)));
  const auto is_small = hn::RebindMask(di, hn::Lt(size, hn::Set(kFloats, 0.015625f)));
  const auto code = hn::Min(hn::IfThenElse(is_small, small, normal), hn::Set(di, 0x7e));
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
  return hn::Or(code, sign);
}

inline uint16_t ToFp8(const float* x, int64_t n, uint8_t* out) noexcept {
  const ValueRange range = RangeOfValue(ExtremesOf(x, n).largest_bits);
  if (range.inverse == 0) {
    __builtin_memset(out, 0, static_cast<size_t>(n));
    return range.scale;
  }
  const FloatVec inverse = hn::Set(kFloats, range.inverse);
  StoreCodes(x, n, out, [&](FloatVec v) HEARTH_INLINED { return Fp8Codes(hn::Mul(v, inverse)); });
  return range.scale;
}

}  // namespace hearth::kernels::HEARTH_ISA
