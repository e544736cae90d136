// The types that keys and values of a KV page have (tensor/kv_layout.h), as attention reads them:
// kLanes floats at a time.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/matmul_float-inl.h"
#include "kernels/simd/quads-inl.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

using CodeTag = hn::Rebind<uint8_t, FloatTag>;
using SmallIntTag = hn::Rebind<int16_t, FloatTag>;

// Keys: a load gives kAtOnce neighbouring components of kLanes tokens, kBytes a token. Of coded
// ones those are codes; scales and zeros of a block, for each kRange components of a head (0: for
// all of them), follow its codes.

template <class Weights>
struct FloatKeys {
  static constexpr bool kCoded = false;
  static constexpr int kAtOnce = 1;
  static constexpr int64_t kBytes = Weights::kBytes;
  static HWY_INLINE void Load(const uint8_t* p, FloatVec (&components)[kAtOnce]) {
    components[0] = Weights::Load(p);
  }
};

struct Int8Keys {
  static constexpr bool kCoded = true;
  static constexpr int64_t kRange = 0;
  static constexpr int kAtOnce = 1;
  static constexpr int64_t kBytes = 1;
  static HWY_INLINE void Load(const uint8_t* p, FloatVec (&components)[kAtOnce]) {
    components[0] = hn::ConvertTo(kFloats, hn::PromoteTo(IntTag(), hn::LoadU(CodeTag(), p)));
  }
};

struct Int4Keys {
  static constexpr bool kCoded = true;
  static constexpr int64_t kRange = KeyBlockLayout::kInt4Range;
  static constexpr int kAtOnce = 2;
  static constexpr int64_t kBytes = 1;
  static HWY_INLINE void Load(const uint8_t* p, FloatVec (&components)[kAtOnce]) {
    const auto codes = hn::PromoteTo(IntTag(), hn::LoadU(CodeTag(), p));
    components[0] = hn::ConvertTo(kFloats, hn::And(codes, hn::Set(IntTag(), 15)));
    components[1] = hn::ConvertTo(kFloats, hn::ShiftRight<4>(codes));
  }
};

// Components of a coded key that share a scale and a zero.
template <class Keys>
HWY_INLINE int64_t KeyRangeComponents(int64_t head_dim) {
  return Keys::kRange == 0 ? head_dim : Keys::kRange;
}

// Bytes of a block's codes, and of a block.
template <class Keys>
HWY_INLINE int64_t KeyCodeBytes(int64_t head_dim) {
  return (head_dim + Keys::kAtOnce - 1) / Keys::kAtOnce * KvLayout::kKeyBlock * Keys::kBytes;
}
template <class Keys>
HWY_INLINE int64_t KeyBlockBytes(int64_t head_dim) {
  const int64_t code_bytes = KeyCodeBytes<Keys>(head_dim);
  if constexpr (Keys::kCoded) {
    const int64_t range = KeyRangeComponents<Keys>(head_dim);
    return code_bytes + (head_dim + range - 1) / range * KeyBlockLayout::kRangeBytes;
  }
  return code_bytes;
}

// Values: as the weight types of matmul_float-inl.h are, and whether positions have scales.

template <class Weights>
struct FloatValues : Weights {
  static constexpr bool kScaled = false;
};

// fp8 numbers, times kFactor smaller than they are: with their sign and exponent moved to where
// binary16 has them, whose exponents begin 8 lower. So its subnormal numbers are theirs.
struct Fp8Values {
  static constexpr bool kScaled = true;
  static constexpr float kFactor = 256.0f;
  static constexpr int64_t kBytes = 1;
  static HWY_INLINE FloatVec FromCodes(hn::Vec<CodeTag> codes) {
    const hn::Rebind<int8_t, FloatTag> d8;
    const auto wide = hn::ShiftLeft<7>(hn::PromoteTo(SmallIntTag(), hn::BitCast(d8, codes)));
    const auto bits = hn::And(wide, hn::Set(SmallIntTag(), static_cast<int16_t>(0xbfff)));
    return hn::PromoteTo(kFloats, hn::BitCast(HalfTag(), bits));
  }
  static HWY_INLINE FloatVec Load(const uint8_t* p) { return FromCodes(hn::LoadU(CodeTag(), p)); }
  static HWY_INLINE FloatVec LoadSome(const uint8_t* p, int64_t n) {
    return FromCodes(LoadFirst(CodeTag(), p, n));
  }
};

}  // namespace hearth::kernels::HEARTH_ISA
