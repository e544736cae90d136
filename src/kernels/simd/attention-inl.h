// Attention over one KV head, for caches in float or binary16.
#pragma once

#include "kernels/simd/elementwise-inl.h"
#include "kernels/simd/matmul_float-inl.h"
#include "kernels/simd/quads-inl.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// The matrix that is read after this one, asked for while this one is computed with: as many bytes
// as are read, so that memory is never idle and never overwhelmed.
class NextMatrix {
 public:
  // Both matrices have `bytes` bytes.
  HWY_INLINE NextMatrix(const NextRead& next, int64_t bytes) : next_(next), bytes_(bytes) {}

  // Call where `kBytes` bytes of this matrix are read behind `at` others. Some lines that are asked
  // for may lie before or behind the next matrix.
  template <int64_t kBytes>
  HWY_INLINE void Fetch(int64_t at) const {
    constexpr int64_t kFetched = kBytes < kLineBytes ? 1 : kBytes / kLineBytes;
    if (next_.insists) {
      Unrolled<kFetched>([&]<int i>()
                             HEARTH_INLINED { FetchAgain(next_.data + at + i * kLineBytes); });
      return;
    }
    // At as many places as they are lines, as from one place alone a processor does not fetch as
    // fast as it may.
    Unrolled<kFetched>([&]<int i>() HEARTH_INLINED {
      FetchAhead(next_.data + i * (bytes_ / kFetched) + at / kFetched, next_.near);
    });
  }
  bool exists() const { return next_.data != nullptr; }

 private:
  // Lines that were asked for so many bytes and twice as many ago may have been dropped.
  static constexpr int64_t kAgainBytes = 1024;
  HWY_INLINE void FetchAgain(const std::byte* p) const {
    FetchAhead(p, next_.near);
    FetchAhead(p - kAgainBytes, next_.near);
    FetchAhead(p - 2 * kAgainBytes, next_.near);
  }

  NextRead next_;
  int64_t bytes_;
};

// Asks for the first lines of every memory page of `bytes` bytes: a processor's own prefetchers
// begin anew in each, at the second or third line. Two to four lines are as good
// (docs/decisions/0015-kernels-tried.md).
HWY_INLINE void FetchBeginnings(const NextRead& next, int64_t bytes) {
  constexpr int64_t kMemoryPage = 4096;
  constexpr int64_t kLines = 3;
  for (int64_t at = 0; at < bytes; at += kMemoryPage) {
    for (int64_t i = 0; i < kLines; ++i) FetchAhead(next.data + at + i * kLineBytes, next.near);
  }
}

// Steps of a loop that ask for lines together: with two, AVX-512 asks at four places for halves.
inline constexpr int kStepsOfFetch = 2;

// Queries at once.
inline constexpr int kQueriesAtOnce = 4;

// Calls run.operator()<Q, kFetch>(query) for all queries, Q at a time; the first of them asks for
// the next matrix, which all use together.
template <class F>
HWY_INLINE void ForQueries(int64_t queries, bool fetch, F&& run) {
  int64_t query = 0;
  for (; query + kQueriesAtOnce <= queries; query += kQueriesAtOnce, fetch = false) {
    if (fetch) {
      run.template operator()<kQueriesAtOnce, true>(query);
    } else {
      run.template operator()<kQueriesAtOnce, false>(query);
    }
  }
  for (; query < queries; ++query, fetch = false) {
    if (fetch) {
      run.template operator()<1, true>(query);
    } else {
      run.template operator()<1, false>(query);
    }
  }
}

// Vectors of scores, or of an output, at once: with kQueriesAtOnce queries they fill half of the
// registers.
inline constexpr int kVectorsAtOnce = kRowsOfFloatTile == 4 ? 4 : 2;

// Vectors that the keys' components i of a block make, and blocks at once.
inline constexpr int kVectorsOfBlock = KvLayout::kKeyBlock / kLanes;
inline constexpr int kBlocksAtOnce =
    kVectorsAtOnce > kVectorsOfBlock ? kVectorsAtOnce / kVectorsOfBlock : 1;
static_assert(kVectorsOfBlock * kLanes == KvLayout::kKeyBlock);

// Puts down the scores of a query with the keys from `key` on, counted from the first one that is
// asked for: those that are asked for.
HWY_INLINE void StoreScores(const AttentionScoresArgs& a, FloatVec some, int64_t query,
                            int64_t key) {
  float* scores = a.scores + query * a.score_stride;
  if (key >= 0 && key + kLanes <= a.count) {
    hn::StoreU(some, kFloats, scores + key);
    return;
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(some, kFloats, lanes);
  for (int64_t i = 0; i < kLanes; ++i) {
    if (key + i >= 0 && key + i < a.count) scores[key + i] = lanes[i];
  }
}

// Scores of the keys of B blocks from `block` on and T queries. Every score is one sum over the
// components in ascending order.
template <class Weights, int B, int T, bool kFetch>
HWY_INLINE void ScoreBlocks(const AttentionScoresArgs& a, const NextMatrix& next, int64_t block,
                            int64_t query) {
  constexpr int kVectors = B * kVectorsOfBlock;
  constexpr int64_t kStepBytes = KvLayout::kKeyBlock * Weights::kBytes;  // of a block
  const int64_t block_bytes = a.head_dim * kStepBytes;
  const auto* keys = reinterpret_cast<const uint8_t*>(a.keys) + block * block_bytes;
  const float* q = a.q + query * a.q_stride;
  FloatVec sums[kVectors][T];
  Unrolled<kVectors * T>([&]<int k>() HEARTH_INLINED { sums[k / T][k % T] = hn::Zero(kFloats); });
  const auto add_component = [&](int64_t i) HEARTH_INLINED {
    FloatVec components[kVectors];
    Unrolled<kVectors>([&]<int v>() HEARTH_INLINED {
      components[v] = Weights::Load(keys + v / kVectorsOfBlock * block_bytes + i * kStepBytes +
                                    v % kVectorsOfBlock * kLanes * Weights::kBytes);
    });
    Unrolled<T>([&]<int t>() HEARTH_INLINED {
      const FloatVec of_query = hn::Set(kFloats, q[t * a.q_stride + i]);
      Unrolled<kVectors>([&]<int v>() HEARTH_INLINED {
        sums[v][t] = hn::MulAdd(of_query, components[v], sums[v][t]);
      });
    });
  };
  int64_t i = 0;
  for (; i + kStepsOfFetch <= a.head_dim; i += kStepsOfFetch) {
    if constexpr (kFetch) {
      next.Fetch<kStepsOfFetch * B * kStepBytes>(block * block_bytes + i * B * kStepBytes);
    }
    Unrolled<kStepsOfFetch>([&]<int step>() HEARTH_INLINED { add_component(i + step); });
  }
  for (; i < a.head_dim; ++i) add_component(i);
  Unrolled<kVectors * T>([&]<int k>() HEARTH_INLINED {
    StoreScores(a, sums[k / T][k % T], query + k % T,
                block * KvLayout::kKeyBlock + k / T * kLanes - a.first);
  });
}

template <class Weights>
void AttentionScores(const AttentionScoresArgs& a) noexcept {
  const int64_t blocks = (a.first + a.count + KvLayout::kKeyBlock - 1) / KvLayout::kKeyBlock;
  const NextMatrix next(a.next, blocks * KvLayout::kKeyBlock * a.head_dim * Weights::kBytes);
  int64_t block = 0;
  const auto score = [&]<int B>() HEARTH_INLINED {
    ForQueries(a.queries, next.exists(), [&]<int Q, bool kFetch>(int64_t query) HEARTH_INLINED {
      ScoreBlocks<Weights, B, Q, kFetch>(a, next, block, query);
    });
  };
  for (; block + kBlocksAtOnce <= blocks; block += kBlocksAtOnce) {
    score.template operator()<kBlocksAtOnce>();
  }
  for (; block < blocks; ++block) score.template operator()<1>();
}

// Queries whose maxima are all found before their scores are raised, so that little waits.
inline constexpr int64_t kQueriesOfWeights = 16;

// The largest of n scores and of `least`.
HWY_INLINE float MaxOfScores(const float* scores, int64_t n, float least) {
  FloatVec most = hn::Set(kFloats, least);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) most = hn::Max(most, hn::LoadU(kFloats, scores + j));
  if (j < n) {
    const auto used = hn::FirstN(kFloats, static_cast<size_t>(n - j));
    most = hn::IfThenElse(used, hn::Max(most, LoadFirst(kFloats, scores + j, n - j)), most);
  }
  return hn::GetLane(hn::MaxOfLanes(kFloats, most));
}

inline void AttentionWeights(const AttentionWeightsArgs& a) noexcept {
  if (a.next.data != nullptr) FetchBeginnings(a.next, a.next_bytes);
  float max[kQueriesOfWeights];
  for (int64_t query = 0; query < a.queries; ++query) {
    const int64_t place = query % kQueriesOfWeights;
    if (place == 0) {
      for (int64_t i = 0; i < kQueriesOfWeights && query + i < a.queries; ++i) {
        max[i] = MaxOfScores(a.scores + (query + i) * a.score_stride, a.count, a.max[query + i]);
      }
    }
    const float old = a.max[query];
    if (max[place] != old) {
      const FloatVec scale = ExpOfNegative(hn::Set(kFloats, old - max[place]));
      float* out = a.out + query * a.out_stride;
      Zip(out, out, a.head_dim, out, [scale](FloatVec x, FloatVec) { return hn::Mul(x, scale); });
      a.sum[query] *= hn::GetLane(scale);
      a.max[query] = max[place];
    }
    a.sum[query] += RaiseScores(a.scores + query * a.score_stride, a.count, max[place]);
  }
}

// Positions that all queries use before the next ones are read, where there are many queries:
// enough to make up for loading and storing the sums in between, few enough that they stay in a
// first-level cache.
inline constexpr int64_t kPositionsAtOnce = 16;

// Elements [i, i + n) of the outputs of Q queries stay in registers over all positions; n is V
// vectors, or fewer elements where kPartial (and then V is 1).
template <class Weights, int V, int Q, bool kPartial, bool kFetch>
HWY_INLINE void SumValues(const AttentionValuesArgs& a, const NextMatrix& next, int64_t query,
                          int64_t i, int64_t n) {
  const float* weights = a.weights + query * a.weight_stride;
  float* out = a.out + query * a.out_stride + i;
  const int64_t row_bytes = a.head_dim * Weights::kBytes;
  const auto* row = reinterpret_cast<const uint8_t*>(a.values) + i * Weights::kBytes;
  FloatVec sums[Q][V];
  Unrolled<Q * V>([&]<int k>() HEARTH_INLINED {
    const float* from = out + k / V * a.out_stride + k % V * kLanes;
    sums[k / V][k % V] = kPartial ? LoadFirst(kFloats, from, n) : hn::LoadU(kFloats, from);
  });
  const auto add_position = [&](int64_t j) HEARTH_INLINED {
    FloatVec values[V];
    Unrolled<V>([&]<int v>() HEARTH_INLINED {
      const uint8_t* from = row + j * row_bytes + v * kLanes * Weights::kBytes;
      values[v] = kPartial ? Weights::LoadSome(from, n) : Weights::Load(from);
    });
    Unrolled<Q>([&]<int q>() HEARTH_INLINED {
      const FloatVec weight = hn::Set(kFloats, weights[q * a.weight_stride + j]);
      Unrolled<V>([&]<int v>()
                      HEARTH_INLINED { sums[q][v] = hn::MulAdd(weight, values[v], sums[q][v]); });
    });
  };
  constexpr int64_t kBytes = V * kLanes * Weights::kBytes;
  int64_t j = 0;
  for (; j + kStepsOfFetch <= a.count; j += kStepsOfFetch) {
    if constexpr (kFetch) {
      next.Fetch<kStepsOfFetch * kBytes>(a.count * i * Weights::kBytes + j * kBytes);
    }
    Unrolled<kStepsOfFetch>([&]<int step>() HEARTH_INLINED { add_position(j + step); });
  }
  for (; j < a.count; ++j) add_position(j);
  Unrolled<Q * V>([&]<int k>() HEARTH_INLINED {
    float* to = out + k / V * a.out_stride + k % V * kLanes;
    if constexpr (kPartial) {
      StoreFirst(sums[k / V][k % V], kFloats, to, n);
    } else {
      hn::StoreU(sums[k / V][k % V], kFloats, to);
    }
  });
}

// All elements of the outputs of Q queries.
template <class Weights, int Q, bool kFetch>
HWY_INLINE void SumAllValues(const AttentionValuesArgs& a, const NextMatrix& next, int64_t query) {
  int64_t i = 0;
  for (; i + kVectorsAtOnce * kLanes <= a.head_dim; i += kVectorsAtOnce * kLanes) {
    SumValues<Weights, kVectorsAtOnce, Q, false, kFetch>(a, next, query, i, 0);
  }
  for (; i + kLanes <= a.head_dim; i += kLanes) {
    SumValues<Weights, 1, Q, false, kFetch>(a, next, query, i, 0);
  }
  if (i < a.head_dim) SumValues<Weights, 1, Q, true, false>(a, next, query, i, a.head_dim - i);
}

template <class Weights>
void AttentionValues(const AttentionValuesArgs& a) noexcept {
  const int64_t row_bytes = a.head_dim * Weights::kBytes;
  const int64_t step = a.queries > kQueriesAtOnce ? kPositionsAtOnce : a.count;
  for (int64_t j = 0; j < a.count; j += step) {
    AttentionValuesArgs part = a;
    part.weights += j;
    part.values += j * row_bytes;
    part.count = a.count - j < step ? a.count - j : step;
    if (part.next.data != nullptr) part.next.data += j * row_bytes;
    const NextMatrix next(part.next, part.count * row_bytes);
    ForQueries(a.queries, next.exists(), [&]<int Q, bool kFetch>(int64_t query) HEARTH_INLINED {
      SumAllValues<Weights, Q, kFetch>(part, next, query);
    });
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
