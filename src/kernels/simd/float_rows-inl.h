// Single neurons from rows of float weights, which lie as they are: dot products with float
// activations, and rows added up with a factor each, for one token or for many.
//
// Weights is a type of matmul_float-inl.h. Dot products are added up as MatMul adds them, and a
// column of a sum is one lane from beginning to end, so that results depend on nothing but their
// row, their token and the order of a list.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/matmul_float-inl.h"
#include "kernels/simd/row_list-inl.h"
#include "tensor/row_groups.h"

namespace hearth::kernels::HEARTH_ISA {

// Rows of a dot product at once.
inline constexpr int kRowsOfFloatDot = 4;

// What rows are multiples of: a line of memory in F16.
inline constexpr int64_t kColumnsOfStep = 32;
inline constexpr int kVectorsOfStep = static_cast<int>(kColumnsOfStep / kLanes);

template <class Weights, int R>
HWY_INLINE void DotFloatRows(const FloatRowDotArgs& a, int64_t first) {
  const uint8_t* rows[R];
  const uint8_t* ahead[R];
  FloatVec sums[R];
  for (int r = 0; r < R; ++r) {
    rows[r] = RowAt(a.list, first + r);
    ahead[r] = RowAhead(a.list, first + r, kRowsOfFloatDot);
    sums[r] = hn::Zero(kFloats);
  }
  for (int64_t step = 0; step < a.k; step += kColumnsOfStep) {
    for (int r = 0; r < R; ++r) FetchAhead(ahead[r] + step * Weights::kBytes);
    for (int64_t i = step; i < step + kColumnsOfStep; i += kLanes) {
      const FloatVec x = hn::LoadU(kFloats, a.x + i);
      for (int r = 0; r < R; ++r) {
        sums[r] = hn::MulAdd(Weights::Load(rows[r] + i * Weights::kBytes), x, sums[r]);
      }
    }
  }
  StoreSumsOfLanes(sums, a.out + first);
}

template <class Weights>
void FloatRowDot(const FloatRowDotArgs& a) noexcept {
  int64_t i = 0;
  for (; i + kRowsOfFloatDot <= a.list.count; i += kRowsOfFloatDot)
    DotFloatRows<Weights, kRowsOfFloatDot>(a, i);
  for (; i < a.list.count; ++i) DotFloatRows<Weights, 1>(a, i);
}

// All rows of a batch on the columns of one step.
template <class Weights>
HWY_INLINE void AddStep(const RowBatch& batch, int64_t column, float* out) {
  FloatVec sums[kVectorsOfStep];
  for (int v = 0; v < kVectorsOfStep; ++v) sums[v] = hn::LoadU(kFloats, out + column + v * kLanes);
  for (int r = 0; r < batch.count; ++r) {
    FetchAhead(batch.ahead[r] + column * Weights::kBytes);
    const uint8_t* weights = batch.rows[r] + column * Weights::kBytes;
    const FloatVec factor = hn::Set(kFloats, batch.a[r]);
    for (int v = 0; v < kVectorsOfStep; ++v) {
      sums[v] = hn::MulAdd(Weights::Load(weights + v * kLanes * Weights::kBytes), factor, sums[v]);
    }
  }
  for (int v = 0; v < kVectorsOfStep; ++v) hn::StoreU(sums[v], kFloats, out + column + v * kLanes);
}

template <class Weights>
void FloatRowScaledAdd(const RowScaledAddArgs& a) noexcept {
  const int64_t begin = a.group_begin * kRowGroupWeights;
  const int64_t last = a.group_end * kRowGroupWeights;
  const int64_t end = last < a.k ? last : a.k;
  for (int64_t i = 0; i < a.list.count; i += kRowsOfSum) {
    const RowBatch batch = BatchOf(a.list, a.a, i);
    for (int64_t c = begin; c < end; c += kColumnsOfStep) AddStep<Weights>(batch, c, a.out);
  }
}

template <class Weights, int T>
HWY_INLINE void FloatRowTimes(const FloatRowTimesTokensArgs& a, int64_t first) {
  const auto* row = reinterpret_cast<const uint8_t*>(a.row);
  const float* x[T];
  FloatVec sums[T];
  for (int t = 0; t < T; ++t) {
    x[t] = a.x + a.tokens[first + t] * a.x_stride;
    sums[t] = hn::Zero(kFloats);
  }
  for (int64_t i = 0; i < a.k; i += kLanes) {
    const FloatVec weights = Weights::Load(row + i * Weights::kBytes);
    for (int t = 0; t < T; ++t) {
      sums[t] = hn::MulAdd(weights, hn::LoadU(kFloats, x[t] + i), sums[t]);
    }
  }
  StoreSumsOfLanes(sums, a.out + first);
}

template <class Weights>
void FloatRowTimesTokens(const FloatRowTimesTokensArgs& a) noexcept {
  int64_t i = 0;
  for (; i + kTokensOfTile <= a.count; i += kTokensOfTile) {
    FloatRowTimes<Weights, kTokensOfTile>(a, i);
  }
  for (; i < a.count; ++i) FloatRowTimes<Weights, 1>(a, i);
}

// Vectors of a row that are unpacked for all tokens before the next ones: as many sums of a token
// stay in registers, and those of a whole batch in the first-level cache.
inline constexpr int kVectorsOfSlice = 8;

// V vectors of columns of all rows, as floats, added to all tokens.
template <class Weights, int V>
HWY_INLINE void AddSlice(const FloatRowsToTokensArgs& a, int64_t column) {
  HWY_ALIGN float slice[kRowsOfBatch][V][kLanes];
  for (int64_t r = 0; r < a.list.count; ++r) {
    const uint8_t* row = RowAt(a.list, r) + column * Weights::kBytes;
    for (int v = 0; v < V; ++v) {
      hn::Store(Weights::Load(row + v * kLanes * Weights::kBytes), kFloats, slice[r][v]);
    }
  }
  for (int64_t t = 0; t < a.tokens; ++t) {
    if (a.begin[t] == a.end[t]) continue;
    float* out = a.out + t * a.out_stride + column;
    FloatVec sums[V];
    for (int v = 0; v < V; ++v) sums[v] = hn::LoadU(kFloats, out + v * kLanes);
    for (int32_t e = a.begin[t]; e < a.end[t]; ++e) {
      const FloatVec factor = hn::Set(kFloats, a.a[e]);
      const auto& weights = slice[a.places[e]];
      for (int v = 0; v < V; ++v) {
        sums[v] = hn::MulAdd(hn::Load(kFloats, weights[v]), factor, sums[v]);
      }
    }
    for (int v = 0; v < V; ++v) hn::StoreU(sums[v], kFloats, out + v * kLanes);
  }
}

template <class Weights>
void FloatRowsToTokens(const FloatRowsToTokensArgs& a) noexcept {
  constexpr int64_t kColumns = kVectorsOfSlice * kLanes;
  int64_t c = 0;
  for (; c + kColumns <= a.columns; c += kColumns) AddSlice<Weights, kVectorsOfSlice>(a, c);
  for (; c < a.columns; c += kColumnsOfStep) AddSlice<Weights, kVectorsOfStep>(a, c);
}

template <class Weights>
constexpr void SetFloatRows(KernelTable& table, DType dtype) {
  const auto type = static_cast<int>(dtype);
  table.float_row_dot[type] = FloatRowDot<Weights>;
  table.row_scaled_add[type] = FloatRowScaledAdd<Weights>;
  table.float_row_times_tokens[type] = FloatRowTimesTokens<Weights>;
  table.float_rows_to_tokens[type] = FloatRowsToTokens<Weights>;
}

}  // namespace hearth::kernels::HEARTH_ISA
