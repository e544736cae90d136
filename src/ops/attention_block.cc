#include "ops/attention_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace hearth::attention {

void QueryBlock::CopyQueries(float* q) const {
  for (int64_t i = 0; i < queries_; ++i) {
    std::memcpy(q + i * head_dim_, RowOf(args_.q, i), RowBytesOfHead());
  }
}

void QueryBlock::ComputeSplit(int64_t index, const Workspace& w, const Partial& out) const {
  const int64_t first = index * kSplitPositions;
  const auto clip = [&](Span s) {
    return Span{std::max(s.begin, first), std::min(s.end, first + kSplitPositions)};
  };
  // Later tokens see what earlier ones see and more, but for what left their window.
  const Span oldest = clip(Positions(tokens_.begin)), newest = clip(Positions(tokens_.end - 1));
  const Span common = {newest.begin, std::max(oldest.end, newest.begin)};
  ComputeScores({oldest.begin, newest.end}, first, w, FirstOf(common, Part::kValues));
  std::memset(out.values, 0, static_cast<size_t>(queries_ * head_dim_) * sizeof(float));
  for (int64_t i = 0; i < queries_; ++i) {
    const Span own = clip(PositionsOfQuery(i));
    out.max[i] = -std::numeric_limits<float>::infinity();
    out.sum[i] = 0;
    if (own.empty()) continue;
    float* own_scores = w.scores + i * kSplitPositions + (own.begin - first);
    out.sum[i] = table_.softmax_terms(own_scores, own.end - own.begin, &out.max[i]);
  }
  // Every query's positions in ascending order: those that not all see, the common ones, and
  // those that not all see yet.
  for (int64_t i = 0; i < queries_; ++i) {
    const Span own = clip(PositionsOfQuery(i));
    AddValues({own.begin, std::min(own.end, common.begin)}, QueryAlone(i), first, w, out);
  }
  const Span following = {newest.end, Positions(tokens_.end - 1).end};
  AddValues(common, {heads_, 0, head_queries_}, first, w, out, FirstOf(following, Part::kKeys));
  for (int64_t i = 0; i < queries_; ++i) {
    const Span own = clip(PositionsOfQuery(i));
    AddValues({std::max(own.begin, common.end), own.end}, QueryAlone(i), first, w, out);
  }
}

void QueryBlock::Merge(const Partial& total, const Partial& split, bool is_first) const {
  if (is_first) {
    std::memcpy(total.max, split.max,
                static_cast<size_t>(Partial::Floats(queries_, head_dim_)) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < queries_; ++i) {
    if (split.sum[i] == 0) continue;  // nothing of this split is seen
    const float max = std::max(total.max[i], split.max[i]);
    const float keep = std::exp(total.max[i] - max), add = std::exp(split.max[i] - max);
    total.max[i] = max;
    total.sum[i] = total.sum[i] * keep + split.sum[i] * add;
    float* to = total.values + i * head_dim_;
    const float* from = split.values + i * head_dim_;
    for (int64_t d = 0; d < head_dim_; ++d) to[d] = to[d] * keep + from[d] * add;
  }
}

void QueryBlock::WriteResult(const Partial& total) const {
  for (int64_t i = 0; i < queries_; ++i) {
    float* out = RowOf(args_.out, i);
    const float scale = 1.0f / total.sum[i];
    const float* values = total.values + i * head_dim_;
    for (int64_t d = 0; d < head_dim_; ++d) out[d] = values[d] * scale;
  }
}

template <typename F>
void QueryBlock::ForMatrices(Span span, Part part, HeadRange heads, const std::byte* last,
                             F&& fn) const {
  for (int64_t p = span.begin; p < span.end;) {
    const int64_t in_page = p % KvLayout::kPageTokens;
    const int64_t count = std::min(KvLayout::kPageTokens - in_page, span.end - p);
    const bool is_last_page = p + count >= span.end;
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      const std::byte* next = head + 1 < heads.end ? MatrixAt(p, part, head + 1)
                              : is_last_page       ? last
                                                   : MatrixAt(p + count, part, heads.begin);
      const auto offset = static_cast<size_t>(in_page) * row_bytes_;
      fn(head, MatrixAt(p, part, head) + offset, next, p, count);
    }
    p += count;
  }
}

void QueryBlock::ComputeScores(Span span, int64_t first, const Workspace& w,
                               const std::byte* next) const {
  const auto scores = is_half() ? table_.attn_scores_f16 : table_.attn_scores_f32;
  ForMatrices(
      span, Part::kKeys, heads_, next,
      [&](int64_t head, const std::byte* keys, const std::byte* following, int64_t p, int64_t n) {
        const int64_t query = IndexOf(head, 0);
        scores({w.q + query * head_dim_, head_dim_, head_queries_, keys, n, head_dim_,
                w.scores + query * kSplitPositions + (p - first), kSplitPositions, following});
      });
}

void QueryBlock::AddValues(Span span, const HeadQueries& queries, int64_t first, const Workspace& w,
                           const Partial& out, const std::byte* next) const {
  const auto add = is_half() ? table_.attn_values_f16 : table_.attn_values_f32;
  ForMatrices(
      span, Part::kValues, queries.heads, next,
      [&](int64_t head, const std::byte* values, const std::byte* following, int64_t p, int64_t n) {
        const int64_t query = IndexOf(head, queries.begin);
        add({w.scores + query * kSplitPositions + (p - first), kSplitPositions, queries.count,
             values, n, head_dim_, out.values + query * head_dim_, head_dim_, following});
      });
}

}  // namespace hearth::attention
