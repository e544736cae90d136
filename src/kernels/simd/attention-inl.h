// Attention over one KV head, for caches of all types (kv_types-inl.h).
#pragma once

#include "kernels/simd/elementwise-inl.h"
#include "kernels/simd/kv_types-inl.h"
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

  // Call where `kBytes` bytes of this matrix are read after `at` others. Some lines that are asked
  // for may lie before or after the next matrix.
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

// Steps of a loop, which read `kBytes` bytes each, that ask for lines together: at least two, with
// which AVX-512 asks at four places for halves, and so many that they read a line.
template <int64_t kBytes>
inline constexpr int kStepsOfFetch = 2 * kBytes >= kLineBytes
                                         ? 2
                                         : static_cast<int>(kLineBytes / kBytes);

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

// The sum of n floats: a fixed function of them.
HWY_INLINE float SumOfFloats(const float* x, int64_t n) {
  FloatVec sum = hn::Zero(kFloats);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::Add(sum, hn::LoadU(kFloats, x + i));
  if (i < n) sum = hn::Add(sum, LoadFirst(kFloats, x + i, n - i));
  return hn::GetLane(hn::SumOfLanes(kFloats, sum));
}

// Adds to scores of T queries what n components from q on give with V vectors of tokens, from sums
// of products with their codes: q . (zero + scale * codes) = scale * (q . codes) + zero * (sum of
// q). `scales` are those of the components in the first block, the next ones block_bytes apart.
template <int V, int T>
HWY_INLINE void AddScaled(const float* q, int64_t q_stride, int64_t n, const uint8_t* scales,
                          int64_t block_bytes, const FloatVec (&sums)[V][T],
                          FloatVec (&scores)[V][T]) {
  constexpr int64_t kBytes = KeyBlockLayout::kHalfBytes;
  FloatVec of_query[T];
  Unrolled<T>([&]<int t>() HEARTH_INLINED {
    of_query[t] = hn::Set(kFloats, SumOfFloats(q + t * q_stride, n));
  });
  Unrolled<V>([&]<int v>() HEARTH_INLINED {
    const uint8_t* at =
        scales + v / kVectorsOfBlock * block_bytes + v % kVectorsOfBlock * kLanes * kBytes;
    const FloatVec scale = LoadHalves(at);
    const FloatVec zero = LoadHalves(at + KvLayout::kKeyBlock * kBytes);
    Unrolled<T>([&]<int t>() HEARTH_INLINED {
      scores[v][t] = hn::MulAdd(scale, sums[v][t], hn::MulAdd(zero, of_query[t], scores[v][t]));
    });
  });
}

template <int V, int T>
HWY_INLINE void Clear(FloatVec (&sums)[V][T]) {
  Unrolled<V * T>([&]<int k>() HEARTH_INLINED { sums[k / T][k % T] = hn::Zero(kFloats); });
}

// Calls add_components.operator()<C>(step) for the steps of components [begin, end) of keys in B
// blocks; begin is a multiple of what a load gives. What is read next is asked for from its byte
// `at` on for component 0.
template <class Keys, int B, bool kFetch, class F>
HWY_INLINE void AddKeyRange(const NextMatrix& next, int64_t at, int64_t begin, int64_t end,
                            const F& add_components) {
  constexpr int64_t kStepBytes = B * KvLayout::kKeyBlock * Keys::kBytes;
  constexpr int kFetchSteps = kStepsOfFetch<kStepBytes>;
  const int64_t steps = end / Keys::kAtOnce;
  int64_t i = begin / Keys::kAtOnce;
  for (; i + kFetchSteps <= steps; i += kFetchSteps) {
    if constexpr (kFetch) next.Fetch<kFetchSteps * kStepBytes>(at + i * kStepBytes);
    Unrolled<kFetchSteps>([&]<int step>() HEARTH_INLINED {
      add_components.template operator()<Keys::kAtOnce>(i + step);
    });
  }
  for (; i < steps; ++i) add_components.template operator()<Keys::kAtOnce>(i);
  if constexpr (Keys::kAtOnce > 1) {
    if (steps * Keys::kAtOnce < end) add_components.template operator()<1>(steps);
  }
}

// Scores of the keys of B blocks from `block` on and T queries. Every score is one sum over the
// components in ascending order; of coded keys, one over ranges of components, each such a sum.
template <class Keys, int B, int T, bool kFetch>
HWY_INLINE void ScoreBlocks(const AttentionScoresArgs& a, const NextMatrix& next, int64_t block,
                            int64_t query) {
  constexpr int kVectors = B * kVectorsOfBlock;
  constexpr int64_t kStepBytes = KvLayout::kKeyBlock * Keys::kBytes;  // of a block
  const int64_t block_bytes = KeyBlockBytes<Keys>(a.head_dim);
  const auto* keys = reinterpret_cast<const uint8_t*>(a.keys) + block * block_bytes;
  const float* q = a.q + query * a.q_stride;
  FloatVec sums[kVectors][T];
  // The components that a load gives, or the first C of them.
  const auto add_components = [&]<int C>(int64_t step) HEARTH_INLINED {
    FloatVec components[kVectors][Keys::kAtOnce];
    Unrolled<kVectors>([&]<int v>() HEARTH_INLINED {
      Keys::Load(keys + v / kVectorsOfBlock * block_bytes + step * kStepBytes +
                     v % kVectorsOfBlock * kLanes * Keys::kBytes,
                 components[v]);
    });
    Unrolled<C * T>([&]<int k>() HEARTH_INLINED {
      constexpr int c = k / T, t = k % T;
      const FloatVec of_query = hn::Set(kFloats, q[t * a.q_stride + step * Keys::kAtOnce + c]);
      Unrolled<kVectors>([&]<int v>() HEARTH_INLINED {
        sums[v][t] = hn::MulAdd(of_query, components[v][c], sums[v][t]);
      });
    });
  };
  const auto add_range = [&](int64_t begin, int64_t end) HEARTH_INLINED {
    AddKeyRange<Keys, B, kFetch>(next, block * block_bytes, begin, end, add_components);
  };
  const auto store = [&](const FloatVec(&scores)[kVectors][T]) HEARTH_INLINED {
    Unrolled<kVectors * T>([&]<int k>() HEARTH_INLINED {
      StoreScores(a, scores[k / T][k % T], query + k % T,
                  block * KvLayout::kKeyBlock + k / T * kLanes - a.first);
    });
  };
  Clear(sums);
  if constexpr (Keys::kCoded) {
    FloatVec scores[kVectors][T];
    Clear(scores);
    const int64_t range = KeyRangeComponents<Keys>(a.head_dim);
    const uint8_t* scales = keys + KeyCodeBytes<Keys>(a.head_dim);
    for (int64_t begin = 0; begin < a.head_dim; begin += range) {
      const int64_t end = begin + range < a.head_dim ? begin + range : a.head_dim;
      add_range(begin, end);
      AddScaled(q + begin, a.q_stride, end - begin, scales, block_bytes, sums, scores);
      Clear(sums);
      scales += KeyBlockLayout::kRangeBytes;
    }
    store(scores);
  } else {
    add_range(0, a.head_dim);
    store(sums);
  }
}

template <class Keys>
void AttentionScores(const AttentionScoresArgs& a) noexcept {
  const int64_t blocks = (a.first + a.count + KvLayout::kKeyBlock - 1) / KvLayout::kKeyBlock;
  const NextMatrix next(a.next, blocks * KeyBlockBytes<Keys>(a.head_dim));
  int64_t block = 0;
  const auto score = [&]<int B>() HEARTH_INLINED {
    ForQueries(a.queries, next.exists(), [&]<int Q, bool kFetch>(int64_t query) HEARTH_INLINED {
      ScoreBlocks<Keys, B, Q, kFetch>(a, next, block, query);
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
template <class Values, int V, int Q, bool kPartial, bool kFetch>
HWY_INLINE void SumValues(const AttentionValuesArgs& a, const NextMatrix& next, int64_t query,
                          int64_t i, int64_t n) {
  const float* weights = a.weights + query * a.weight_stride;
  float* out = a.out + query * a.out_stride + i;
  const int64_t row_bytes = a.head_dim * Values::kBytes;
  const auto* row = reinterpret_cast<const uint8_t*>(a.values) + i * Values::kBytes;
  FloatVec sums[Q][V];
  Unrolled<Q * V>([&]<int k>() HEARTH_INLINED {
    const float* from = out + k / V * a.out_stride + k % V * kLanes;
    sums[k / V][k % V] = kPartial ? LoadFirst(kFloats, from, n) : hn::LoadU(kFloats, from);
  });
  const auto add_position = [&](int64_t j) HEARTH_INLINED {
    FloatVec values[V];
    Unrolled<V>([&]<int v>() HEARTH_INLINED {
      const uint8_t* from = row + j * row_bytes + v * kLanes * Values::kBytes;
      values[v] = kPartial ? Values::LoadSome(from, n) : Values::Load(from);
    });
    Unrolled<Q>([&]<int q>() HEARTH_INLINED {
      const FloatVec weight = hn::Set(kFloats, weights[q * a.weight_stride + j]);
      Unrolled<V>([&]<int v>()
                      HEARTH_INLINED { sums[q][v] = hn::MulAdd(weight, values[v], sums[q][v]); });
    });
  };
  constexpr int64_t kBytes = V * kLanes * Values::kBytes;
  constexpr int kFetchSteps = kStepsOfFetch<kBytes>;
  int64_t j = 0;
  for (; j + kFetchSteps <= a.count; j += kFetchSteps) {
    if constexpr (kFetch) {
      next.Fetch<kFetchSteps * kBytes>(a.count * i * Values::kBytes + j * kBytes);
    }
    Unrolled<kFetchSteps>([&]<int step>() HEARTH_INLINED { add_position(j + step); });
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
template <class Values, int Q, bool kFetch>
HWY_INLINE void SumAllValues(const AttentionValuesArgs& a, const NextMatrix& next, int64_t query) {
  int64_t i = 0;
  for (; i + kVectorsAtOnce * kLanes <= a.head_dim; i += kVectorsAtOnce * kLanes) {
    SumValues<Values, kVectorsAtOnce, Q, false, kFetch>(a, next, query, i, 0);
  }
  for (; i + kLanes <= a.head_dim; i += kLanes) {
    SumValues<Values, 1, Q, false, kFetch>(a, next, query, i, 0);
  }
  if (i < a.head_dim) SumValues<Values, 1, Q, true, false>(a, next, query, i, a.head_dim - i);
}

// Positions whose weights are scaled at once: a page's.
inline constexpr int64_t kScaledAtOnce = KvLayout::kPageTokens;

// Weights of Q queries from `query` on times the scales of `count` <= kScaledAtOnce positions, and
// times what the values are too small by: scaled[q * kScaledAtOnce + j].
template <int Q>
HWY_INLINE void ScaleWeights(const AttentionValuesArgs& a, int64_t query, float factor,
                             float* scaled) {
  const auto* scales = reinterpret_cast<const uint8_t*>(a.scales);
  const FloatVec by = hn::Set(kFloats, factor);
  for (int64_t j = 0; j < a.count; j += kLanes) {
    const int64_t n = a.count - j < kLanes ? a.count - j : kLanes;
    const uint8_t* at = scales + j * KeyBlockLayout::kHalfBytes;
    const FloatVec scale =
        hn::Mul(by, n == kLanes ? F16Weights::Load(at) : F16Weights::LoadSome(at, n));
    Unrolled<Q>([&]<int q>() HEARTH_INLINED {
      const float* from = a.weights + (query + q) * a.weight_stride + j;
      const FloatVec weight = n == kLanes ? hn::LoadU(kFloats, from) : LoadFirst(kFloats, from, n);
      hn::StoreU(hn::Mul(weight, scale), kFloats, scaled + q * kScaledAtOnce + j);
    });
  }
}
static_assert(kScaledAtOnce % kLanes == 0);

// What some positions give Q queries from `query` on.
template <class Values, int Q, bool kFetch>
HWY_INLINE void AddPositions(const AttentionValuesArgs& a, const NextMatrix& next, int64_t query) {
  if constexpr (Values::kScaled) {
    HWY_ALIGN float scaled[Q * kScaledAtOnce];
    ScaleWeights<Q>(a, query, Values::kFactor, scaled);
    AttentionValuesArgs of_queries = a;
    of_queries.weights = scaled;
    of_queries.weight_stride = kScaledAtOnce;
    of_queries.out = a.out + query * a.out_stride;
    SumAllValues<Values, Q, kFetch>(of_queries, next, 0);
  } else {
    SumAllValues<Values, Q, kFetch>(a, next, query);
  }
}

template <class Values>
void AttentionValues(const AttentionValuesArgs& a) noexcept {
  const int64_t row_bytes = a.head_dim * Values::kBytes;
  const int64_t most = Values::kScaled && a.count > kScaledAtOnce ? kScaledAtOnce : a.count;
  const int64_t step = a.queries > kQueriesAtOnce ? kPositionsAtOnce : most;
  for (int64_t j = 0; j < a.count; j += step) {
    AttentionValuesArgs part = a;
    part.weights += j;
    part.values += j * row_bytes;
    if constexpr (Values::kScaled) part.scales += j * KeyBlockLayout::kHalfBytes;
    part.count = a.count - j < step ? a.count - j : step;
    if (part.next.data != nullptr) part.next.data += j * row_bytes;
    const NextMatrix next(part.next, part.count * row_bytes);
    ForQueries(a.queries, next.exists(), [&]<int Q, bool kFetch>(int64_t query) HEARTH_INLINED {
      AddPositions<Values, Q, kFetch>(part, next, query);
    });
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
