// Attention over one KV head, for caches in float or binary16.
#pragma once

#include "kernels/matmul_float-inl.h"
#include "kernels/quads-inl.h"
#include "kernels/tiles-inl.h"
#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// The keys are a matrix of `count` rows that is multiplied with the queries.
template <class Weights>
void AttentionScores(const AttentionScoresArgs& a) noexcept {
  MatMulArgs args{};
  args.weights = a.keys;
  args.row_bytes = static_cast<size_t>(a.head_dim * Weights::kBytes);
  args.k = a.head_dim;
  args.x = a.q;
  args.x_stride = a.q_stride;
  args.tokens = a.queries;
  args.out = a.scores;
  args.out_stride = a.score_stride;
  args.row_end = a.count;
  MatMul<FloatFamily<Weights>>(args);
}

// Positions that all queries use before the next ones are read: enough to make up for loading and
// storing the sums in between, few enough that reading never pauses for long.
inline constexpr int64_t kPositionsAtOnce = 16;

// Asks for what lies `ahead` bytes behind V vectors of a row.
template <class Weights, int V>
HWY_INLINE void PrefetchVectors(const uint8_t* from, int64_t ahead) {
  constexpr int64_t kVector = kLanes * Weights::kBytes;
  for (int64_t i = 0; i < V * kVector; i += kVector < kLineBytes ? kLineBytes : kVector) {
    __builtin_prefetch(from + ahead + i);
  }
}

// Elements [i, i + n) of the outputs of Q queries stay in registers over all positions; n is V
// vectors, or fewer elements where kPartial (and then V is 1).
template <class Weights, int V, int Q, bool kPartial>
HWY_INLINE void SumValues(const AttentionValuesArgs& a, int64_t query, int64_t i, int64_t n,
                          int64_t ahead) {
  const float* weights = a.weights + query * a.weight_stride;
  float* out = a.out + query * a.out_stride + i;
  const int64_t row_bytes = a.head_dim * Weights::kBytes;
  const auto* row = reinterpret_cast<const uint8_t*>(a.values) + i * Weights::kBytes;
  FloatVec sums[Q][V];
  for (int q = 0; q < Q; ++q) {
    for (int v = 0; v < V; ++v) {
      const float* from = out + q * a.out_stride + v * kLanes;
      sums[q][v] = kPartial ? LoadFirst(kFloats, from, n) : hn::LoadU(kFloats, from);
    }
  }
  for (int64_t j = 0; j < a.count; ++j, row += row_bytes) {
    if (ahead > 0) PrefetchVectors<Weights, V>(row, ahead);
    FloatVec values[V];
    for (int v = 0; v < V; ++v) {
      const uint8_t* from = row + v * kLanes * Weights::kBytes;
      values[v] = kPartial ? Weights::LoadSome(from, n) : Weights::Load(from);
    }
    for (int q = 0; q < Q; ++q) {
      const FloatVec weight = hn::Set(kFloats, weights[q * a.weight_stride + j]);
      for (int v = 0; v < V; ++v) sums[q][v] = hn::MulAdd(weight, values[v], sums[q][v]);
    }
  }
  for (int q = 0; q < Q; ++q) {
    for (int v = 0; v < V; ++v) {
      float* to = out + q * a.out_stride + v * kLanes;
      if constexpr (kPartial) {
        StoreFirst(sums[q][v], kFloats, to, n);
      } else {
        hn::StoreU(sums[q][v], kFloats, to);
      }
    }
  }
}

// Queries at once: with kValueVectors vectors each they fill half of the registers with sums.
inline constexpr int kQueriesAtOnce = 4;
inline constexpr int kValueVectors = kRowsOfFloatTile == 4 ? 4 : 2;

// Reads `ahead` bytes ahead unless that is 0.
template <class Weights, int Q>
HWY_INLINE void SumAllValues(const AttentionValuesArgs& a, int64_t query, int64_t ahead) {
  int64_t i = 0;
  for (; i + kValueVectors * kLanes <= a.head_dim; i += kValueVectors * kLanes) {
    SumValues<Weights, kValueVectors, Q, false>(a, query, i, 0, ahead);
  }
  for (; i + kLanes <= a.head_dim; i += kLanes)
    SumValues<Weights, 1, Q, false>(a, query, i, 0, ahead);
  if (i < a.head_dim) SumValues<Weights, 1, Q, true>(a, query, i, a.head_dim - i, ahead);
}

template <class Weights>
void AttentionValues(const AttentionValuesArgs& a) noexcept {
  const int64_t row_bytes = a.head_dim * Weights::kBytes;
  for (int64_t j = 0; j < a.count; j += kPositionsAtOnce) {
    const int64_t rest = a.count - j - kPositionsAtOnce;
    AttentionValuesArgs block = a;
    block.weights += j;
    block.values += j * row_bytes;
    block.count = rest < 0 ? a.count - j : kPositionsAtOnce;
    // The first queries bring the next block into a cache.
    int64_t ahead = rest > 0 ? kPositionsAtOnce * row_bytes : 0;
    int64_t query = 0;
    for (; query + kQueriesAtOnce <= a.queries; query += kQueriesAtOnce, ahead = 0) {
      SumAllValues<Weights, kQueriesAtOnce>(block, query, ahead);
    }
    for (; query < a.queries; ++query, ahead = 0) SumAllValues<Weights, 1>(block, query, ahead);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
