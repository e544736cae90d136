// Attention over one KV head's part of a page: four queries (a group, in decode) and 32 (prefill);
// and of a token that is decoded after 4,096 others, over a layer of mistral-7b, by codec.
#include <algorithm>

#include "bench/micro/micro.h"
#include "tensor/kv_layout.h"

namespace hearth::micro {
namespace {

constexpr int64_t kHeadDim = 128;
constexpr int64_t kPositions = KvLayout::kPageTokens;

constexpr const char* kKeyNames[kNumKvKeys] = {"F32", "F16", "I8", "I4"};
constexpr const char* kValueNames[kNumKvValues] = {"F32", "F16", "FP8"};

// A codec with these values, for their layout.
constexpr KvCodec kCodecOfValues[kNumKvValues] = {KvCodec::kF32, KvCodec::kF16, KvCodec::kK8V8};

void RunScores(const Context& context, KvKeys type, int64_t queries, benchmark::State& state) {
  const int64_t bytes = KeyBlockLayout{type, kHeadDim}.bytes() * (kPositions / KvLayout::kKeyBlock);
  Pieces pages(context.memory, static_cast<size_t>(bytes), state);
  const std::vector<float> q = SomeFloats(queries * kHeadDim);
  std::vector<float> scores(static_cast<size_t>(queries * kPositions));
  for (auto _ : state) {
    const std::byte* keys = pages.Next();
    const kernels::NextRead next{pages.following()};
    context.table.attn_scores[static_cast<int>(type)]({q.data(), kHeadDim, queries, keys, 0,
                                                       kPositions, kHeadDim, scores.data(),
                                                       kPositions, next});
    benchmark::ClobberMemory();
  }
  CountBytes(state, bytes);
  CountMacs(state, queries * kPositions * kHeadDim);
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

void RunValues(const Context& context, KvValues type, int64_t queries, benchmark::State& state) {
  const KvLayout layout{kCodecOfValues[static_cast<int>(type)], 1, 1, kHeadDim};
  Pieces pages(context.memory, layout.values_bytes(), state);
  const std::vector<float> weights = SomeFloats(queries * kPositions);
  std::vector<float> out(static_cast<size_t>(queries * kHeadDim));
  for (auto _ : state) {
    const std::byte* values = pages.Next();
    const kernels::NextRead next{pages.following()};
    context.table.attn_values[static_cast<int>(type)]({weights.data(), kPositions, queries, values,
                                                       kPositions, kHeadDim, out.data(), kHeadDim,
                                                       next, values + layout.ValueScaleAt(0)});
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(layout.values_bytes()));
  CountMacs(state, queries * kPositions * kHeadDim);
}

// What a thread does of a token's attention over one layer: every page's heads one after the other,
// as ops/query_block.cc does it. An iteration is a token.
void RunToken(const Context& context, KvCodec codec, benchmark::State& state) {
  constexpr int64_t kContext = 4096, kKvHeads = 8, kGroup = 4;
  const KvLayout layout{codec, 1, kKvHeads, kHeadDim};
  const auto scores_of = context.table.attn_scores[static_cast<int>(layout.keys())];
  // Where values take more bytes than keys, the first of them were asked for earlier.
  const size_t asked_for =
      std::max(layout.values_bytes(), layout.keys_bytes()) - layout.keys_bytes();
  const auto add_values = context.table.attn_values[static_cast<int>(layout.values())];
  Pieces pages(context.memory, layout.page_bytes(), state);
  const std::vector<float> q = SomeFloats(kKvHeads * kGroup * kHeadDim);
  std::vector<float> scores(static_cast<size_t>(kGroup * kPositions)), out(q.size());
  std::vector<float> max(static_cast<size_t>(kKvHeads * kGroup), 100.0f), sum(max.size());
  for (auto _ : state) {
    for (int64_t page = 0; page < kContext / kPositions; ++page) {
      const std::byte* at = pages.Next();
      for (int64_t head = 0; head < kKvHeads; ++head) {
        const std::byte* keys = at + layout.KeysOffset(0, head);
        const std::byte* values = at + layout.ValuesOffset(0, head);
        const std::byte* following =
            head + 1 < kKvHeads ? at + layout.KeysOffset(0, head + 1) : pages.following();
        const int64_t query = head * kGroup;
        float* to = out.data() + query * kHeadDim;
        scores_of({q.data() + query * kHeadDim,
                   kHeadDim,
                   kGroup,
                   keys,
                   0,
                   kPositions,
                   kHeadDim,
                   scores.data(),
                   kPositions,
                   {values + asked_for}});
        context.table.attn_weights({scores.data(),
                                    kPositions,
                                    kGroup,
                                    kPositions,
                                    max.data() + query,
                                    sum.data() + query,
                                    to,
                                    kHeadDim,
                                    kHeadDim,
                                    {following},
                                    static_cast<int64_t>(layout.head_bytes())});
        add_values({scores.data(),
                    kPositions,
                    kGroup,
                    values,
                    kPositions,
                    kHeadDim,
                    to,
                    kHeadDim,
                    {following},
                    layout.has_value_scales() ? values + layout.ValueScaleAt(0) : nullptr});
      }
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(layout.token_bytes()) * kContext);
  CountMacs(state, 2 * kContext * kKvHeads * kGroup * kHeadDim);
}

}  // namespace

void RegisterAttention(const Context& context) {
  for (const int64_t queries : {4, 32}) {
    const std::string variant = "/queries:" + std::to_string(queries);
    Register(context, "attn_weights" + variant, BoundBy::kCompute,
             [context, queries](benchmark::State& state) { RunWeights(context, queries, state); });
    for (int type = 0; type < kNumKvKeys; ++type) {
      Register(context, std::string("attn_scores/") + kKeyNames[type] + variant, BoundBy::kMemory,
               [context, type, queries](benchmark::State& state) {
                 RunScores(context, static_cast<KvKeys>(type), queries, state);
               });
    }
    for (int type = 0; type < kNumKvValues; ++type) {
      Register(context, std::string("attn_values/") + kValueNames[type] + variant, BoundBy::kMemory,
               [context, type, queries](benchmark::State& state) {
                 RunValues(context, static_cast<KvValues>(type), queries, state);
               });
    }
  }
  for (size_t codec = 0; codec < kKvCodecs.size(); ++codec) {
    Register(context, "attn_token/" + std::string(kKvCodecs[codec].name) + "/context:4096",
             BoundBy::kMemory, [context, codec](benchmark::State& state) {
               RunToken(context, static_cast<KvCodec>(codec), state);
             });
  }
}

}  // namespace hearth::micro
