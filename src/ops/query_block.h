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

// Positions of a split: few enough to share a long context out, so many that merging costs little
// beside them.
inline constexpr int64_t kSplitPositions = 512;
static_assert(kSplitPositions % KvLayout::kPageTokens == 0);

inline int64_t SplitsOf(int64_t positions) {
  return (positions + kSplitPositions - 1) / kSplitPositions;
}

// Heads whose queries share a KV head.
inline int64_t GroupOf(const KvLayout& layout, int64_t num_heads) {
  return num_heads / layout.num_kv_heads;
}

// A partial softmax of some queries: the values summed with weights of exp(score - maximum),
// [queries][head_dim]; maximum and sum of the weights per query.
struct Partial {
  float* values;
  float* max;
  float* sum;

  static int64_t Floats(int64_t queries, int64_t head_dim) { return queries * (head_dim + 2); }
  static Partial At(float* memory, int64_t queries, int64_t head_dim) {
    float* max = memory + queries * head_dim;
    return {memory, max, max + queries};
  }
};

// What one thread works with.
struct Workspace {
  float* scores;  // [queries][KvLayout::kPageTokens]
  float* q;       // [queries][head_dim]
  Partial total;
  Partial split;

  static int64_t Floats(int64_t queries, int64_t head_dim) {
    return queries * (head_dim + KvLayout::kPageTokens) + 2 * Partial::Floats(queries, head_dim);
  }
  static Workspace At(float* memory, int64_t queries, int64_t head_dim) {
    float* q = memory + queries * KvLayout::kPageTokens;
    float* total = q + queries * head_dim;
    return {memory, q, Partial::At(total, queries, head_dim),
            Partial::At(total + Partial::Floats(queries, head_dim), queries, head_dim)};
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
  int64_t count() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool operator==(const Span&) const = default;
};

inline Span Intersection(Span a, Span b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// KV heads [begin, end).
struct HeadRange {
  int64_t begin;
  int64_t end;
  int64_t count() const { return end - begin; }
};

// The queries of the groups of some KV heads for a block of tokens, head by head: query i of a head
// belongs to token i / group. Several tokens come with one head. Holds references to `table` and
// `args`; several threads may call it.
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
        scores_(table.attn_scores[static_cast<int>(args.layout->keys())]),
        add_values_(table.attn_values[static_cast<int>(args.layout->values())]) {}

  int64_t queries() const { return queries_; }
  int64_t num_splits() const { return SplitsOf(Positions(tokens_.end - 1).end); }

  // Gathers the queries in q[queries][head_dim].
  void CopyQueries(float* q) const;

  // What split `index` reads first; null where it reads nothing.
  const std::byte* FirstKeys(int64_t index) const {
    const Span seen = SeenOfSplit(index);
    return seen.empty() ? nullptr : KeysAt(seen.begin, heads_.begin);
  }

  // Computes what positions of split `index` give the queries of `w.q`, which must be this block's,
  // with the other memory of `w`. Asks for what is read `next` (null: nothing).
  void ComputeSplit(int64_t index, const Workspace& w, const Partial& out,
                    const std::byte* next) const;

  // total += split; the first one (is_first) sets it.
  void Merge(const Partial& total, const Partial& split, bool is_first) const;

  // Divides the sums of all splits into args.out.
  void WriteResult(const Partial& total) const;

 private:
  struct Queries {
    int64_t begin;
    int64_t count;
  };
  Queries QueriesOf(int64_t head) const {
    return {(head - heads_.begin) * head_queries_, head_queries_};
  }

  int64_t HeadOf(int64_t query) const {
    return (heads_.begin + query / head_queries_) * group_ + query % group_;
  }
  float* RowOf(const FloatView& view, int64_t query) const {
    return view.row(TokenOf(query)) + HeadOf(query) * head_dim_;
  }
  int64_t TokenOf(int64_t query) const { return tokens_.begin + query % head_queries_ / group_; }
  size_t RowBytesOfHead() const { return static_cast<size_t>(head_dim_) * sizeof(float); }

  // What a token sees.
  Span Positions(int64_t token) const {
    const int64_t end = args_.positions[static_cast<size_t>(token)] + 1;
    const int64_t window = args_.sliding_window;
    return {window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
  }
  // What any token sees of a split.
  Span SeenOfSplit(int64_t index) const {
    return Intersection({index * kSplitPositions, (index + 1) * kSplitPositions},
                        {Positions(tokens_.begin).begin, Positions(tokens_.end - 1).end});
  }

  // The block of keys that has `position`'s, and the row of its values (KvLayout).
  const std::byte* KeysAt(int64_t position, int64_t head) const {
    return PageOf(position) + args_.layout->KeysOffset(args_.layer, head) +
           args_.layout->KeyBlockAt(RowInPage(position));
  }
  const std::byte* ValuesAt(int64_t position, int64_t head) const {
    return PageOf(position) + args_.layout->ValuesOffset(args_.layer, head) +
           args_.layout->ValueAt(RowInPage(position));
  }
  // Of its values; null where the codec has none.
  const std::byte* ValueScalesAt(int64_t position, int64_t head) const {
    if (!args_.layout->has_value_scales()) return nullptr;
    return PageOf(position) + args_.layout->ValuesOffset(args_.layer, head) +
           args_.layout->ValueScaleAt(RowInPage(position));
  }
  // Which of its block of keys a position is.
  static int64_t IndexInBlock(int64_t position) { return position % KvLayout::kKeyBlock; }

  static int64_t RowInPage(int64_t position) { return position % KvLayout::kPageTokens; }
  const std::byte* PageOf(int64_t position) const {
    const auto& pages = args_.pages[static_cast<size_t>(tokens_.begin)];
    return pages[static_cast<size_t>(position / KvLayout::kPageTokens)];
  }

  // Adds what positions of one page give all queries. Asks for what is read `next`.
  void AddPage(Span page, const Workspace& w, const Partial& out, const std::byte* next) const;

  // Scores of a head's queries with all positions of a page that are seen.
  void ComputeScores(Span page, int64_t head, const Workspace& w) const;

  // The same scores, kept within AttentionArgs::softcap of zero.
  void CapScores(Span page, Queries queries, const Workspace& w) const;

  // Scores of some queries with some positions of a page become weights (AttentionWeightsArgs).
  // Asks for the beginnings of the keys that are read `next`, and of their values, where that is
  // not null.
  void WeighScores(Span page, Span positions, Queries queries, const Workspace& w,
                   const Partial& out, const std::byte* next) const;

  // Adds the values of these positions to some queries of one head. Asks for what is read `next`
  // (null: nothing).
  void AddValues(Span page, Span positions, Queries queries, const Workspace& w, const Partial& out,
                 const std::byte* next) const;

  // What the weights of a query's values, with that of its head's sink, are divided by.
  float ScaleOf(const Partial& total, int64_t query) const;

  const kernels::KernelTable& table_;
  const AttentionArgs& args_;
  TokenBlock tokens_;
  HeadRange heads_;
  int64_t group_;
  int64_t head_queries_;
  int64_t queries_;
  int64_t head_dim_;
  kernels::AttentionScoresFn scores_;  // of the layout's types
  kernels::AttentionValuesFn add_values_;
};

}  // namespace hearth::attention
