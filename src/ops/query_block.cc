#include "ops/query_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace hearth::attention {

void QueryBlock::CopyQueries(float* q) const {
  for (int64_t i = 0; i < queries_; ++i) {
    std::memcpy(q + i * head_dim_, RowOf(args_.q, i), RowBytesOfHead());
  }
}

void QueryBlock::ComputeSplit(int64_t index, const Workspace& w, const Partial& out,
                              const std::byte* next) const {
  std::fill_n(out.values, queries_ * head_dim_, 0.0f);
  std::fill_n(out.max, queries_, -std::numeric_limits<float>::infinity());
  std::fill_n(out.sum, queries_, 0.0f);
  const Span seen = SeenOfSplit(index);
  for (int64_t begin = seen.begin; begin < seen.end;) {
    const int64_t page = begin / KvLayout::kPageTokens;
    const int64_t end = std::min(seen.end, (page + 1) * KvLayout::kPageTokens);
    AddPage({begin, end}, w, out, end < seen.end ? KeysAt(end, heads_.begin) : next);
    begin = end;
  }
}

void QueryBlock::AddPage(Span page, const Workspace& w, const Partial& out,
                         const std::byte* next) const {
  // Later tokens see what earlier ones see and more, but for what left their window.
  const Span oldest = Intersection(page, Positions(tokens_.begin));
  const Span newest = Intersection(page, Positions(tokens_.end - 1));
  if (oldest == page && newest == page) {
    // Head by head, as a page lies in memory.
    for (int64_t head = heads_.begin; head < heads_.end; ++head) {
      const std::byte* following = head + 1 < heads_.end ? KeysAt(page.begin, head + 1) : next;
      ComputeScores(page, head, w);
      WeighScores(page, page, QueriesOf(head), w, out, following);
      AddValues(page, page, QueriesOf(head), w, out, following);
    }
    return;
  }
  // Several tokens, and so one head. Every query's positions in ascending order: those that not
  // all see, the common ones, and those that not all see yet.
  ComputeScores(page, heads_.begin, w);
  const Span common = {newest.begin, std::max(oldest.end, newest.begin)};
  const auto own = [&](int64_t query) { return Intersection(page, Positions(TokenOf(query))); };
  for (int64_t i = 0; i < queries_; ++i) {
    WeighScores(page, own(i), {i, 1}, w, out, nullptr);
    AddValues(page, {own(i).begin, std::min(own(i).end, common.begin)}, {i, 1}, w, out, nullptr);
  }
  AddValues(page, common, {0, queries_}, w, out, next);
  for (int64_t i = 0; i < queries_; ++i) {
    AddValues(page, {std::max(own(i).begin, common.end), own(i).end}, {i, 1}, w, out, nullptr);
  }
}

void QueryBlock::ComputeScores(Span page, int64_t head, const Workspace& w) const {
  const int64_t query = QueriesOf(head).begin;
  // Their values, as many bytes as the keys have. Where values have more, their first ones were
  // asked for after these keys, while the values of the page before were computed with.
  const auto keys_bytes = static_cast<int64_t>(args_.layout->keys_bytes());
  const auto values_bytes = static_cast<int64_t>(args_.layout->values_bytes());
  const kernels::NextRead next{ValuesAt(page.begin, head) +
                               std::max<int64_t>(0, values_bytes - keys_bytes)};
  scores_({w.q + query * head_dim_, head_dim_, head_queries_, KeysAt(page.begin, head),
           IndexInBlock(page.begin), page.count(), head_dim_,
           w.scores + query * KvLayout::kPageTokens, KvLayout::kPageTokens, next});
  if (args_.softcap > 0) CapScores(page, QueriesOf(head), w);
}

void QueryBlock::CapScores(Span page, Queries queries, const Workspace& w) const {
  for (int64_t i = queries.begin; i < queries.begin + queries.count; ++i) {
    float* scores = w.scores + i * KvLayout::kPageTokens;
    for (int64_t p = 0; p < page.count(); ++p) {
      scores[p] = args_.softcap * std::tanh(scores[p] / args_.softcap);
    }
  }
}

void QueryBlock::WeighScores(Span page, Span positions, Queries queries, const Workspace& w,
                             const Partial& out, const std::byte* next) const {
  if (positions.empty()) return;
  table_.attn_weights(
      {w.scores + queries.begin * KvLayout::kPageTokens + (positions.begin - page.begin),
       KvLayout::kPageTokens,
       queries.count,
       positions.count(),
       out.max + queries.begin,
       out.sum + queries.begin,
       out.values + queries.begin * head_dim_,
       head_dim_,
       head_dim_,
       {next},
       static_cast<int64_t>(args_.layout->head_bytes())});
}

void QueryBlock::AddValues(Span page, Span positions, Queries queries, const Workspace& w,
                           const Partial& out, const std::byte* next) const {
  if (positions.empty()) return;
  const int64_t head = heads_.begin + queries.begin / head_queries_;
  add_values_({w.scores + queries.begin * KvLayout::kPageTokens + (positions.begin - page.begin),
               KvLayout::kPageTokens,
               queries.count,
               ValuesAt(positions.begin, head),
               positions.count(),
               head_dim_,
               out.values + queries.begin * head_dim_,
               head_dim_,
               {next},
               ValueScalesAt(positions.begin, head)});
}

void QueryBlock::Merge(const Partial& total, const Partial& split, bool is_first) const {
  if (is_first) {
    std::memcpy(total.values, split.values,
                static_cast<size_t>(Partial::Floats(queries_, head_dim_)) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < queries_; ++i) {
    if (split.sum[i] == 0) continue;  // nothing of this split is seen
    float* to = total.values + i * head_dim_;
    float add = 1;
    if (split.max[i] > total.max[i]) {
      const float keep = std::exp(total.max[i] - split.max[i]);
      total.max[i] = split.max[i];
      total.sum[i] *= keep;
      for (int64_t d = 0; d < head_dim_; ++d) to[d] *= keep;
    } else {
      add = std::exp(split.max[i] - total.max[i]);
    }
    total.sum[i] += split.sum[i] * add;
    table_.scaled_add(split.values + i * head_dim_, add, head_dim_, to);
  }
}

float QueryBlock::ScaleOf(const Partial& total, int64_t query) const {
  const float sum = total.sum[query];
  if (args_.sinks == nullptr) return 1.0f / sum;
  const float above = args_.sinks[HeadOf(query)] - total.max[query];
  // Neither exponential can overflow.
  if (above <= 0) return 1.0f / (sum + std::exp(above));
  const float shrunk = std::exp(-above);
  return shrunk / (sum * shrunk + 1);
}

void QueryBlock::WriteResult(const Partial& total) const {
  for (int64_t i = 0; i < queries_; ++i) {
    float* out = RowOf(args_.out, i);
    const float scale = ScaleOf(total, i);
    const float* values = total.values + i * head_dim_;
    for (int64_t d = 0; d < head_dim_; ++d) out[d] = values[d] * scale;
  }
}

}  // namespace hearth::attention
