// What one thread of Attention computes at a time: the queries of some KV heads for a block of
// neighbouring tokens, one split of their positions after the other (ops/attention.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "ops/attention.h"
#include "tensor/kv_layout.h"
#include "tensor/view.h"

namespace hearth::attention {

// Positions of a split: the scores of a block's queries over them stay in a first-level cache, and
// merging costs little beside them.
inline constexpr int64_t kSplitPositions = 256;
static_assert(kSplitPositions % KvLayout::kPageTokens == 0);

inline int64_t SplitsOf(int64_t positions) {
  return (positions + kSplitPositions - 1) / kSplitPositions;
}

// Heads whose queries share a KV head.
inline int64_t GroupOf(const KvLayout& layout, int64_t num_heads) {
  return num_heads / layout.num_kv_heads;
}

// A partial softmax of some queries: maximum and sum of exp(score - maximum) per query, and the
// values summed with these weights, [queries][head_dim].
struct Partial {
  float* max;
  float* sum;
  float* values;

  static int64_t Floats(int64_t queries, int64_t head_dim) { return queries * (head_dim + 2); }
  static Partial At(float* memory, int64_t queries) {
    return {memory, memory + queries, memory + 2 * queries};
  }
};

// What one thread works with.
struct Workspace {
  float* q;       // [queries][head_dim]
  float* scores;  // [queries][kSplitPositions]
  Partial total;
  Partial split;

  static int64_t Floats(int64_t queries, int64_t head_dim) {
    return queries * (head_dim + kSplitPositions) + 2 * Partial::Floats(queries, head_dim);
  }
  static Workspace At(float* memory, int64_t queries, int64_t head_dim) {
    float* scores = memory + queries * head_dim;
    float* total = scores + queries * kSplitPositions;
    return {memory, scores, Partial::At(total, queries),
            Partial::At(total + Partial::Floats(queries, head_dim), queries)};
  }
};

// Tokens [begin, end) of one sequence.
struct TokenBlock {
  int64_t begin;
  int64_t end;
};

// Positions [begin, end).
struct Span {
  int64_t begin;
  int64_t end;
  bool empty() const { return begin >= end; }
};

// KV heads [begin, end).
struct HeadRange {
  int64_t begin;
  int64_t end;
  int64_t count() const { return end - begin; }
};

// The queries of the groups of some KV heads for a block of tokens, head by head: query i of a head
// belongs to token i / group. Holds references to `table` and `args`; several threads may call it.
class QueryBlock {
 public:
  QueryBlock(const kernels::KernelTable& table, const AttentionArgs& args, TokenBlock tokens,
             HeadRange heads)
      : table_(table),
        args_(args),
        tokens_(tokens),
        heads_(heads),
        group_(GroupOf(*args.layout, args.num_heads)),
        head_queries_((tokens.end - tokens.begin) * group_),
        queries_(head_queries_ * heads.count()),
        head_dim_(args.layout->head_dim),
        row_bytes_(args.layout->row_bytes()),
        matrix_bytes_(args.layout->matrix_bytes()),
        layer_offset_(args.layout->KeysOffset(args.layer, 0)) {}

  int64_t queries() const { return queries_; }
  int64_t num_splits() const { return SplitsOf(Positions(tokens_.end - 1).end); }

  // Gathers the queries in q[queries][head_dim].
  void CopyQueries(float* q) const;

  // Computes what positions of split `index` give the queries of `w.q`, which must be this block's,
  // with the other memory of `w`.
  void ComputeSplit(int64_t index, const Workspace& w, const Partial& out) const;

  // total += split; the first one (is_first) sets it.
  void Merge(const Partial& total, const Partial& split, bool is_first) const;

  // Divides the sums of all splits into args.out.
  void WriteResult(const Partial& total) const;

 private:
  // Which of the two matrices that a page has of a layer's KV head.
  enum class Part { kKeys, kValues };

  // Queries [begin, begin + count) of every one of some heads.
  struct HeadQueries {
    HeadRange heads;
    int64_t begin;
    int64_t count;
  };
  HeadQueries QueryAlone(int64_t query) const {
    const int64_t head = heads_.begin + query / head_queries_;
    return {{head, head + 1}, query % head_queries_, 1};
  }
  // Of all queries, query `i` of a head.
  int64_t IndexOf(int64_t head, int64_t i) const {
    return (head - heads_.begin) * head_queries_ + i;
  }
  int64_t TokenOf(int64_t query) const { return tokens_.begin + query % head_queries_ / group_; }

  bool is_half() const { return args_.layout->dtype == DType::kF16; }
  size_t RowBytesOfHead() const { return static_cast<size_t>(head_dim_) * sizeof(float); }

  float* RowOf(const FloatView& view, int64_t query) const {
    const int64_t kv_head = heads_.begin + query / head_queries_;
    return view.row(TokenOf(query)) + (kv_head * group_ + query % group_) * head_dim_;
  }

  // What a token sees.
  Span Positions(int64_t token) const {
    const int64_t end = args_.positions[static_cast<size_t>(token)] + 1;
    const int64_t window = args_.sliding_window;
    return {window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
  }
  Span PositionsOfQuery(int64_t query) const { return Positions(TokenOf(query)); }

  // The matrix of the page that `position` is in (KvLayout).
  const std::byte* MatrixAt(int64_t position, Part part, int64_t head) const {
    const auto& pages = args_.pages[static_cast<size_t>(tokens_.begin)];
    const auto index = static_cast<size_t>(2 * head + (part == Part::kValues ? 1 : 0));
    return pages[static_cast<size_t>(position / KvLayout::kPageTokens)] + layer_offset_ +
           index * matrix_bytes_;
  }
  // That which is read first of a span; null where it is empty.
  const std::byte* FirstOf(Span span, Part part) const {
    return span.empty() ? nullptr : MatrixAt(span.begin, part, heads_.begin);
  }

  // Calls fn(head, rows, next, first position, count) for the pieces of a span that lie in one
  // matrix, those of a page after each other. Matrix `next` follows; behind the last one `last`.
  template <typename F>
  void ForMatrices(Span span, Part part, HeadRange heads, const std::byte* last, F&& fn) const;

  // Scores of all queries with the keys of a span in the split that begins at `first`. Asks for
  // what is read `next`.
  void ComputeScores(Span span, int64_t first, const Workspace& w, const std::byte* next) const;

  // Adds the values of a span to some queries. Asks for what is read `next`.
  void AddValues(Span span, const HeadQueries& queries, int64_t first, const Workspace& w,
                 const Partial& out, const std::byte* next = nullptr) const;

  const kernels::KernelTable& table_;
  const AttentionArgs& args_;
  TokenBlock tokens_;
  HeadRange heads_;
  int64_t group_;
  int64_t head_queries_;
  int64_t queries_;
  int64_t head_dim_;
  size_t row_bytes_;
  size_t matrix_bytes_;
  size_t layer_offset_;  // of the layer's matrices in a page
};

}  // namespace hearth::attention
