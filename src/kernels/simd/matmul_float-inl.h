// Products of F32, F16 and BF16 weights with float activations; attention over the KV cache,
// whose scores are such products with one token.
#pragma once

#include "kernels/simd/tiles-inl.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// A weight type: kLanes of them as floats, from bytes of any alignment.
struct F32Weights {
  static constexpr int64_t kBytes = 4;
  static HWY_INLINE FloatVec Load(const uint8_t* p) {
    return hn::LoadU(kFloats, reinterpret_cast<const float*>(p));
  }
  static HWY_INLINE FloatVec LoadSome(const uint8_t* p, int64_t n) {
    return LoadFirst(kFloats, reinterpret_cast<const float*>(p), n);
  }
};

struct F16Weights {
  static constexpr int64_t kBytes = 2;
  static HWY_INLINE FloatVec FromBits(hn::Vec<HalfBitsTag> bits) {
    return hn::PromoteTo(kFloats, hn::BitCast(HalfTag(), bits));
  }
  static HWY_INLINE FloatVec Load(const uint8_t* p) {
    return FromBits(hn::LoadU(HalfBitsTag(), reinterpret_cast<const uint16_t*>(p)));
  }
  static HWY_INLINE FloatVec LoadSome(const uint8_t* p, int64_t n) {
    return FromBits(LoadFirst(HalfBitsTag(), reinterpret_cast<const uint16_t*>(p), n));
  }
};

struct BF16Weights {
  static constexpr int64_t kBytes = 2;
  static HWY_INLINE FloatVec FromBits(hn::Vec<HalfBitsTag> bits) {
    return hn::PromoteTo(kFloats, hn::BitCast(BHalfTag(), bits));
  }
  static HWY_INLINE FloatVec Load(const uint8_t* p) {
    return FromBits(hn::LoadU(HalfBitsTag(), reinterpret_cast<const uint16_t*>(p)));
  }
  static HWY_INLINE FloatVec LoadSome(const uint8_t* p, int64_t n) {
    return FromBits(LoadFirst(HalfBitsTag(), reinterpret_cast<const uint16_t*>(p), n));
  }
};

// Adds the products of columns [i, i + n) to the sums of R rows times T tokens; n is kLanes, or
// less where kPartial.
template <class Weights, bool kPartial, int R, int T>
HWY_INLINE void AddProducts(const uint8_t* const (&w)[R], const float* const (&x)[T], int64_t i,
                            int64_t n, FloatVec (&sums)[R][T]) {
  FloatVec activations[T];
  Unrolled<T>([&]<int t>() HEARTH_INLINED {
    activations[t] = kPartial ? LoadFirst(kFloats, x[t] + i, n) : hn::LoadU(kFloats, x[t] + i);
  });
  Unrolled<R>([&]<int r>() HEARTH_INLINED {
    const uint8_t* at = w[r] + i * Weights::kBytes;
    const FloatVec weights = kPartial ? Weights::LoadSome(at, n) : Weights::Load(at);
    Unrolled<T>([&]<int t>() HEARTH_INLINED {
      sums[r][t] = hn::MulAdd(weights, activations[t], sums[r][t]);
    });
  });
}

// Four floats: as many sums as are made at once.
using QuadTag = hn::CappedTag<float, 4>;
using Quad = hn::Vec<QuadTag>;

// The sum of the blocks of 128 bits of a vector.
template <class D>
HWY_INLINE Quad SumOfBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Lane i of every block of 128 bits: the sum of that block of v[i]. Fewer steps than four single
// sums; each is added in the same order whatever the others are.
HWY_INLINE FloatVec SumsInBlocks(const FloatVec (&v)[4]) {
  const hn::RepartitionToWide<FloatTag> pairs;
  const auto add_halves = [](FloatVec a, FloatVec b) {
    return hn::Add(hn::InterleaveLower(kFloats, a, b), hn::InterleaveUpper(kFloats, a, b));
  };
  const auto low = hn::BitCast(pairs, add_halves(v[0], v[1]));
  const auto high = hn::BitCast(pairs, add_halves(v[2], v[3]));
  // A blend and a shuffle: two shuffles would wait for the same part of a processor.
  return hn::Add(hn::BitCast(kFloats, hn::OddEven(high, low)),
                 hn::BitCast(kFloats, hn::CombineShiftRightBytes<8>(pairs, high, low)));
}

// The sums of the lanes of four vectors.
HWY_INLINE Quad SumsOfLanes(const FloatVec (&v)[4]) {
  return SumOfBlocks(kFloats, SumsInBlocks(v));
}

template <int N>
HWY_INLINE void StoreFirstFloats(Quad v, float* to) {
  if constexpr (N == 4) {
    hn::StoreU(v, QuadTag(), to);
  } else {
    StoreFirstByCopy(v, QuadTag(), to, N);
  }
}

// The sums of the lanes of N <= 4 vectors.
template <int N>
HWY_INLINE void StoreSumsOfLanes(const FloatVec (&v)[N], float* to) {
  FloatVec four[4];
  Unrolled<4>([&]<int i>()
                  HEARTH_INLINED { four[i] = i < N ? v[i < N ? i : 0] : hn::Zero(kFloats); });
  StoreFirstFloats<N>(SumsOfLanes(four), to);
}

// How far ahead of its use a row is asked for; where rows are short that is in the rows after it.
inline constexpr uintptr_t kRowPrefetchBytes = 2048;

HWY_INLINE void PrefetchAhead(const uint8_t* p) {
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + kRowPrefetchBytes));
}

template <class Weights>
struct FloatFamily {
  static constexpr int kRowsOfTile = kRowsOfFloatTile;

  template <int R, int T>
  static HWY_INLINE void Tile(const MatMulArgs& a, int64_t row, int64_t token) {
    const uint8_t* w[R];
    for (int r = 0; r < R; ++r) w[r] = RowAt(a, row + r);
    const float* x[T];
    for (int t = 0; t < T; ++t) x[t] = a.x + (token + t) * a.x_stride;
    FloatVec sums[R][T];
    Unrolled<R * T>([&]<int i>() HEARTH_INLINED { sums[i / T][i % T] = hn::Zero(kFloats); });
    int64_t i = 0;
    for (; i + kLanes <= a.k; i += kLanes) {
      for (int r = 0; r < R; ++r) PrefetchAhead(w[r] + i * Weights::kBytes);
      AddProducts<Weights, false>(w, x, i, kLanes, sums);
    }
    if (i < a.k) AddProducts<Weights, true>(w, x, i, a.k - i, sums);
    Unrolled<T>([&]<int t>() HEARTH_INLINED {
      FloatVec of_rows[R];
      Unrolled<R>([&]<int r>() HEARTH_INLINED { of_rows[r] = sums[r][t]; });
      StoreSumsOfLanes(of_rows, &OutAt(a, row, token + t));
    });
  }
};

}  // namespace hearth::kernels::HEARTH_ISA
