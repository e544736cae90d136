// Attention over one KV head, for caches in float or binary16.
#pragma once

#include "kernels/matmul_float-inl.h"
#include "kernels/quads-inl.h"
#include "kernels/tiles-inl.h"
#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Places of the next matrix that are asked for in turn: from one place alone a processor does not
// fetch as fast as it may.
inline constexpr int64_t kFetchStreams = 4;

// Asks for the share that rows [row, row + rows) of `count` have in the matrix at `next`. They may
// point past its end; a prefetch never faults.
HWY_INLINE void FetchNext(const std::byte* next, int64_t row, int64_t rows, int64_t count,
                          int64_t row_bytes) {
  if (next == nullptr) return;
  const int64_t begin = row * row_bytes / kFetchStreams;
  const int64_t end = (row + rows) * row_bytes / kFetchStreams;
  for (int64_t stream = 0; stream < kFetchStreams; ++stream) {
    const std::byte* from = next + stream * (count * row_bytes / kFetchStreams);
    for (int64_t i = begin; i < end; i += kLineBytes) __builtin_prefetch(from + i, 0, 2);
  }
}

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
  for (int64_t j = 0; j < a.count; j += kRowPanelMultiple) {
    const int64_t end = a.count - j < kRowPanelMultiple ? a.count : j + kRowPanelMultiple;
    FetchNext(a.next, j, end - j, a.count, a.head_dim * Weights::kBytes);
    RowsTimesAllTokens<FloatFamily<Weights>>(args, j, end);
  }
}

// Positions that all queries use before the next ones are read: enough to make up for loading and
// storing the sums in between, few enough that they stay in a first-level cache.
inline constexpr int64_t kPositionsAtOnce = 16;

// Elements [i, i + n) of the outputs of Q queries stay in registers over all positions; n is V
// vectors, or fewer elements where kPartial (and then V is 1).
template <class Weights, int V, int Q, bool kPartial>
HWY_INLINE void SumValues(const AttentionValuesArgs& a, int64_t query, int64_t i, int64_t n) {
  const float* weights = a.weights + query * a.weight_stride;
  float* out = a.out + query * a.out_stride + i;
  const int64_t row_bytes = a.head_dim * Weights::kBytes;
  const auto* row = reinterpret_cast<const uint8_t*>(a.values) + i * Weights::kBytes;
  FloatVec sums[Q][V];
  Unrolled<Q * V>([&]<int k>() HEARTH_INLINED {
    const float* from = out + k / V * a.out_stride + k % V * kLanes;
    sums[k / V][k % V] = kPartial ? LoadFirst(kFloats, from, n) : hn::LoadU(kFloats, from);
  });
  for (int64_t j = 0; j < a.count; ++j, row += row_bytes) {
    FloatVec values[V];
    Unrolled<V>([&]<int v>() HEARTH_INLINED {
      const uint8_t* from = row + v * kLanes * Weights::kBytes;
      values[v] = kPartial ? Weights::LoadSome(from, n) : Weights::Load(from);
    });
    Unrolled<Q>([&]<int q>() HEARTH_INLINED {
      const FloatVec weight = hn::Set(kFloats, weights[q * a.weight_stride + j]);
      Unrolled<V>([&]<int v>()
                      HEARTH_INLINED { sums[q][v] = hn::MulAdd(weight, values[v], sums[q][v]); });
    });
  }
  Unrolled<Q * V>([&]<int k>() HEARTH_INLINED {
    float* to = out + k / V * a.out_stride + k % V * kLanes;
    if constexpr (kPartial) {
      StoreFirst(sums[k / V][k % V], kFloats, to, n);
    } else {
      hn::StoreU(sums[k / V][k % V], kFloats, to);
    }
  });
}

// Queries at once: with kValueVectors vectors each they fill half of the registers with sums.
inline constexpr int kQueriesAtOnce = 4;
inline constexpr int kValueVectors = kRowsOfFloatTile == 4 ? 4 : 2;

// All elements of the outputs of Q queries.
template <class Weights, int Q>
HWY_INLINE void SumAllValues(const AttentionValuesArgs& a, int64_t query) {
  int64_t i = 0;
  for (; i + kValueVectors * kLanes <= a.head_dim; i += kValueVectors * kLanes) {
    SumValues<Weights, kValueVectors, Q, false>(a, query, i, 0);
  }
  for (; i + kLanes <= a.head_dim; i += kLanes) SumValues<Weights, 1, Q, false>(a, query, i, 0);
  if (i < a.head_dim) SumValues<Weights, 1, Q, true>(a, query, i, a.head_dim - i);
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
    FetchNext(a.next, j, block.count, a.count, row_bytes);
    int64_t query = 0;
    for (; query + kQueriesAtOnce <= a.queries; query += kQueriesAtOnce) {
      SumAllValues<Weights, kQueriesAtOnce>(block, query);
    }
    for (; query < a.queries; ++query) SumAllValues<Weights, 1>(block, query);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
