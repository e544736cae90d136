// Attention over one KV head, for caches in float or binary16.
#pragma once

#include "kernels/matmul_float-inl.h"
#include "kernels/tiles-inl.h"
#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// The keys are a matrix of `count` rows that is multiplied with one token, the query.
template <class Weights, class T>
void AttentionScores(const float* q, const T* keys, int64_t count, int64_t head_dim,
                     float* scores) noexcept {
  MatMulArgs args{};
  args.weights = reinterpret_cast<const std::byte*>(keys);
  args.row_bytes = static_cast<size_t>(head_dim * Weights::kBytes);
  args.k = head_dim;
  args.x = q;
  args.tokens = 1;
  args.out = scores;
  args.row_end = count;
  MatMul<FloatFamily<Weights>>(args);
}

// V vectors of the output stay in registers over all positions. `last` < kLanes elements more
// where kPartial.
template <class Weights, int V, bool kPartial>
HWY_INLINE void SumValues(const float* weights, const uint8_t* values, int64_t count,
                          int64_t row_bytes, float* out, int64_t last) {
  constexpr int kWhole = kPartial ? V - 1 : V;
  FloatVec sums[V];
  for (int v = 0; v < kWhole; ++v) sums[v] = hn::LoadU(kFloats, out + v * kLanes);
  if constexpr (kPartial) sums[kWhole] = LoadFirst(kFloats, out + kWhole * kLanes, last);
  for (int64_t j = 0; j < count; ++j) {
    const FloatVec weight = hn::Set(kFloats, weights[j]);
    const uint8_t* row = values + j * row_bytes;
    for (int v = 0; v < kWhole; ++v) {
      sums[v] = hn::MulAdd(weight, Weights::Load(row + v * kLanes * Weights::kBytes), sums[v]);
    }
    if constexpr (kPartial) {
      const uint8_t* rest = row + kWhole * kLanes * Weights::kBytes;
      sums[kWhole] = hn::MulAdd(weight, Weights::LoadSome(rest, last), sums[kWhole]);
    }
  }
  for (int v = 0; v < kWhole; ++v) hn::StoreU(sums[v], kFloats, out + v * kLanes);
  if constexpr (kPartial) StoreFirst(sums[kWhole], kFloats, out + kWhole * kLanes, last);
}

template <class Weights, class T>
void AttentionValues(const float* weights, const T* values, int64_t count, int64_t head_dim,
                     float* out) noexcept {
  const int64_t row_bytes = head_dim * Weights::kBytes;
  const auto* from = reinterpret_cast<const uint8_t*>(values);
  int64_t i = 0;
  for (; i + 4 * kLanes <= head_dim; i += 4 * kLanes) {
    SumValues<Weights, 4, false>(weights, from + i * Weights::kBytes, count, row_bytes, out + i, 0);
  }
  for (; i + kLanes <= head_dim; i += kLanes) {
    SumValues<Weights, 1, false>(weights, from + i * Weights::kBytes, count, row_bytes, out + i, 0);
  }
  if (i < head_dim) {
    SumValues<Weights, 1, true>(weights, from + i * Weights::kBytes, count, row_bytes, out + i,
                                head_dim - i);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
