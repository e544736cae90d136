// Attention over one KV head's part of a page: four queries (a group, in decode) and 32 (prefill).
#include <algorithm>

#include "bench/micro/micro.h"
#include "tensor/kv_layout.h"

namespace hearth::micro {
namespace {

using kernels::AttentionScoresArgs;
using kernels::AttentionValuesArgs;

constexpr int64_t kHeadDim = 128;
constexpr int64_t kPositions = KvLayout::kPageTokens;

struct CacheType {
  const char* name;
  int64_t bytes;
  void (*kernels::KernelTable::*scores)(const AttentionScoresArgs&) noexcept;
  void (*kernels::KernelTable::*values)(const AttentionValuesArgs&) noexcept;
};
constexpr CacheType kCacheTypes[] = {
    {"F32", 4, &kernels::KernelTable::attn_scores_f32, &kernels::KernelTable::attn_values_f32},
    {"F16", 2, &kernels::KernelTable::attn_scores_f16, &kernels::KernelTable::attn_values_f16},
};

void Count(benchmark::State& state, const CacheType& type, int64_t queries) {
  CountBytes(state, kPositions * kHeadDim * type.bytes);
  CountMacs(state, queries * kPositions * kHeadDim);
}

void RunScores(const Context& context, const CacheType& type, int64_t queries,
               benchmark::State& state) {
  Pieces pages(context.memory, static_cast<size_t>(kPositions * kHeadDim * type.bytes), state);
  const std::vector<float> q = SomeFloats(queries * kHeadDim);
  std::vector<float> scores(static_cast<size_t>(queries * kPositions));
  for (auto _ : state) {
    const std::byte* keys = pages.Next();
    const kernels::NextRead next{pages.following()};
    (context.table.*type.scores)({q.data(), kHeadDim, queries, keys, 0, kPositions, kHeadDim,
                                  scores.data(), kPositions, next});
    benchmark::ClobberMemory();
  }
  Count(state, type, queries);
}

// Of all queries of a page that a thread may take in decode.
void RunWeights(const Context& context, int64_t queries, benchmark::State& state) {
  const std::vector<float> scores = SomeFloats(queries * kPositions);
  std::vector<float> weights(scores.size()), out(static_cast<size_t>(queries * kHeadDim));
  std::vector<float> max(static_cast<size_t>(queries), 1.0f), sum(max.size());
  for (auto _ : state) {
    std::copy(scores.begin(), scores.end(), weights.begin());
    context.table.attn_weights({weights.data(), kPositions, queries, kPositions, max.data(),
                                sum.data(), out.data(), kHeadDim, kHeadDim});
    benchmark::ClobberMemory();
  }
  CountItems(state, queries * kPositions);
}

void RunValues(const Context& context, const CacheType& type, int64_t queries,
               benchmark::State& state) {
  Pieces pages(context.memory, static_cast<size_t>(kPositions * kHeadDim * type.bytes), state);
  const std::vector<float> weights = SomeFloats(queries * kPositions);
  std::vector<float> out(static_cast<size_t>(queries * kHeadDim));
  for (auto _ : state) {
    const std::byte* values = pages.Next();
    const kernels::NextRead next{pages.following()};
    (context.table.*type.values)({weights.data(), kPositions, queries, values, kPositions, kHeadDim,
                                  out.data(), kHeadDim, next});
    benchmark::ClobberMemory();
  }
  Count(state, type, queries);
}

}  // namespace

void RegisterAttention(const Context& context) {
  for (const int64_t queries : {4, 32}) {
    Register(context, "attn_weights/queries:" + std::to_string(queries), BoundBy::kCompute,
             [context, queries](benchmark::State& state) { RunWeights(context, queries, state); });
  }
  for (const CacheType& type : kCacheTypes) {
    for (const int64_t queries : {4, 32}) {
      const std::string variant =
          std::string("/") + type.name + "/queries:" + std::to_string(queries);
      Register(context, "attn_scores" + variant, BoundBy::kMemory,
               [context, &type, queries](benchmark::State& state) {
                 RunScores(context, type, queries, state);
               });
      Register(context, "attn_values" + variant, BoundBy::kMemory,
               [context, &type, queries](benchmark::State& state) {
                 RunValues(context, type, queries, state);
               });
    }
  }
}

}  // namespace hearth::micro
