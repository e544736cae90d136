// Products of Q4_0, Q4_1 and Q8_0 weights with int8 activations.
//
// A block of 32 weights times a block of 32 activations is an integer sum, exact and spread over
// the lanes of a vector, which is then scaled by both blocks' scales and added to a float vector
// per row and token. Primitives of the ISA (see x86/int8_primitives-inl.h): Codes, IntSums,
// FloatSums and the functions on them.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/tiles-inl.h"
#include "tensor/blocks.h"

namespace hearth::kernels::HEARTH_ISA {

// A weight type. With v a weight in units of its block's scale, Codes holds v + kOffset (which an
// ISA may choose so that the codes suit its dot product). Times activations that gives
// kOffset * sum too much, which the sum of the activation block takes off again.
struct Q4_0Weights {
  static constexpr int64_t kBytes = sizeof(BlockQ4_0);
  static constexpr int32_t kOffset = kBlockOffsetQ4_0;
  static constexpr bool kHasMinimum = false;
  static HWY_INLINE Codes Load(const uint8_t* block) {
    return LoadCodesQ4_0(block + offsetof(BlockQ4_0, qs));
  }
  static HWY_INLINE IntSums Dot(IntSums start, Codes w, Codes x) { return DotNibbles(start, w, x); }
};

struct Q4_1Weights {
  static constexpr int64_t kBytes = sizeof(BlockQ4_1);
  static constexpr int32_t kOffset = 0;
  static constexpr bool kHasMinimum = true;
  static HWY_INLINE Codes Load(const uint8_t* block) {
    return LoadNibbles(block + offsetof(BlockQ4_1, qs));
  }
  static HWY_INLINE IntSums Dot(IntSums start, Codes w, Codes x) { return DotNibbles(start, w, x); }
};

struct Q8_0Weights {
  static constexpr int64_t kBytes = sizeof(BlockQ8_0);
  static constexpr int32_t kOffset = kOffsetQ8_0;
  static constexpr bool kHasMinimum = false;
  static HWY_INLINE Codes Load(const uint8_t* block) {
    return LoadCodesQ8_0(block + offsetof(BlockQ8_0, qs));
  }
  static HWY_INLINE IntSums Dot(IntSums start, Codes w, Codes x) { return DotQ8_0(start, w, x); }
};

template <class T>
HWY_INLINE T LoadAs(const uint8_t* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

// One block of activations, ready to be multiplied with many weight blocks.
template <class Weights>
struct Activations {
  Codes codes;
  IntSums start;    // what an integer sum starts from: the correction of the offset
  FloatSums scale;  // in all lanes
  FloatSums sum;    // of the block in real units, in the first lane; for minimums

  HWY_INLINE void Load(const uint8_t* block) {
    codes = LoadCodes(block + offsetof(BlockQ8, codes));
    const float block_scale = LoadAs<float>(block + offsetof(BlockQ8, scale));
    const int32_t code_sum = LoadAs<int32_t>(block + offsetof(BlockQ8, sum));
    scale = Splat(block_scale);
    start = FirstLane(-Weights::kOffset * code_sum);
    if constexpr (Weights::kHasMinimum) {
      sum = FirstLane(block_scale * static_cast<float>(code_sum));
    }
  }
};

template <class Weights>
struct Q8Family {
  static constexpr int kRowsOfTile = kRowsOfInt8Tile;

  template <int R, int T>
  static HWY_INLINE void Tile(const MatMulArgs& a, int64_t row, int64_t token) {
    const uint8_t* w[R];
    for (int r = 0; r < R; ++r) w[r] = RowAt(a, row + r);
    const uint8_t* x[T];
    for (int t = 0; t < T; ++t) {
      x[t] = static_cast<const uint8_t*>(a.x) +
             (token + t) * a.x_stride * static_cast<int64_t>(sizeof(BlockQ8));
    }
    FloatSums sums[R][T];
    for (auto& of_row : sums) {
      for (FloatSums& sum : of_row) sum = Splat(0.0f);
    }
    const int64_t blocks = a.k / 32;
    for (int64_t b = 0; b < blocks; ++b) {
      if constexpr (T == 1) {
        for (int r = 0; r < R; ++r) PrefetchRowAhead<R>(w[r], a.row_bytes);
      }
      Multiply<R, T>(w, x, sums);
    }
    for (int t = 0; t < T; ++t) {
      for (int r = 0; r < R; ++r) OutAt(a, row + r, token + t) = Total(sums[r][t]);
    }
  }

  // Adds one block of every row and token and moves on to the next.
  template <int R, int T>
  static HWY_INLINE void Multiply(const uint8_t* (&w)[R], const uint8_t* (&x)[T],
                                  FloatSums (&sums)[R][T]) {
    Activations<Weights> activations[T];
    for (int t = 0; t < T; ++t) {
      activations[t].Load(x[t]);
      x[t] += sizeof(BlockQ8);
    }
    for (int r = 0; r < R; ++r) {
      const Codes codes = Weights::Load(w[r]);
      const FloatSums scale = Splat(HalfToFloat(w[r]));  // every block begins with its scale
      for (int t = 0; t < T; ++t) {
        const IntSums products = Weights::Dot(activations[t].start, codes, activations[t].codes);
        const FloatSums scaled = Mul(ToFloats(products), activations[t].scale);
        sums[r][t] = MulAdd(scaled, scale, sums[r][t]);
        if constexpr (Weights::kHasMinimum) {
          const FloatSums minimum = Splat(HalfToFloat(w[r] + sizeof(HalfBits)));
          sums[r][t] = MulAdd(minimum, activations[t].sum, sums[r][t]);
        }
      }
      w[r] += Weights::kBytes;
    }
  }
};

}  // namespace hearth::kernels::HEARTH_ISA
