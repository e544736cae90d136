#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

// Positions of a split: the scores of kMaxQueries queries over them stay in a first-level cache,
// and merging costs little beside them.
constexpr int64_t kSplitPositions = 256;
static_assert(kSplitPositions % KvLayout::kPageTokens == 0);
// Queries that read keys and values together: those of a KV head's group for some neighbouring
// tokens. A larger group is still one item.
constexpr int64_t kMaxQueries = 32;
// With fewer (token, KV head) pairs than this per thread, splits are shared out as well.
constexpr int64_t kPairsPerThread = 2;

// Bytes of a page that are asked for before it is reached: what kernels fetch ahead of themselves.
constexpr size_t kPrefetchedBytes = 4096;

int64_t SplitsOf(int64_t positions) { return (positions + kSplitPositions - 1) / kSplitPositions; }

int64_t GroupOf(const KvLayout& layout, int64_t num_heads) {
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

// The queries of one KV head's group for a block of tokens: query i belongs to token i / group.
class QueryBlock {
 public:
  QueryBlock(const kernels::KernelTable& table, const AttentionArgs& args, TokenBlock tokens,
             int64_t kv_head)
      : table_(table),
        args_(args),
        tokens_(tokens),
        group_(GroupOf(*args.layout, args.num_heads)),
        queries_((tokens.end - tokens.begin) * group_),
        head_dim_(args.layout->head_dim),
        kv_head_(kv_head) {}

  int64_t queries() const { return queries_; }
  int64_t num_splits() const { return SplitsOf(Positions(tokens_.end - 1).end); }

  void CopyQueries(float* q) const {
    for (int64_t i = 0; i < queries_; ++i) {
      std::memcpy(q + i * head_dim_, RowOf(args_.q, i), RowBytesOfHead());
    }
  }

  // Computes what positions of split `index` give the queries.
  void ComputeSplit(int64_t index, const Workspace& w, const Partial& out) const {
    const int64_t first = index * kSplitPositions;
    const auto clip = [&](Span s) {
      return Span{std::max(s.begin, first), std::min(s.end, first + kSplitPositions)};
    };
    // Later tokens see what earlier ones see and more, but for what left their window.
    const Span oldest = clip(Positions(tokens_.begin)), newest = clip(Positions(tokens_.end - 1));
    PrefetchPage(first, values_offset());
    const auto scores = is_half() ? table_.attn_scores_f16 : table_.attn_scores_f32;
    ForPages({oldest.begin, newest.end}, keys_offset(),
             [&](const std::byte* keys, int64_t p, int64_t n) {
               scores({w.q, head_dim_, queries_, keys, n, head_dim_, w.scores + (p - first),
                       kSplitPositions});
             });
    PrefetchPage(first + kSplitPositions, keys_offset());
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
    const Span common = {newest.begin, std::max(oldest.end, newest.begin)};
    for (int64_t i = 0; i < queries_; ++i) {
      const Span own = clip(PositionsOfQuery(i));
      AddValues({own.begin, std::min(own.end, common.begin)}, i, 1, first, w, out);
    }
    AddValues(common, 0, queries_, first, w, out);
    for (int64_t i = 0; i < queries_; ++i) {
      const Span own = clip(PositionsOfQuery(i));
      AddValues({std::max(own.begin, common.end), own.end}, i, 1, first, w, out);
    }
  }

  // total += split; the first one (is_first) sets it.
  void Merge(const Partial& total, const Partial& split, bool is_first) const {
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

  void WriteResult(const Partial& total) const {
    for (int64_t i = 0; i < queries_; ++i) {
      float* out = RowOf(args_.out, i);
      const float scale = 1.0f / total.sum[i];
      const float* values = total.values + i * head_dim_;
      for (int64_t d = 0; d < head_dim_; ++d) out[d] = values[d] * scale;
    }
  }

 private:
  bool is_half() const { return args_.layout->dtype == DType::kF16; }
  size_t RowBytesOfHead() const { return static_cast<size_t>(head_dim_) * sizeof(float); }

  float* RowOf(const FloatView& view, int64_t query) const {
    return view.row(tokens_.begin + query / group_) +
           (kv_head_ * group_ + query % group_) * head_dim_;
  }

  // What a token sees.
  Span Positions(int64_t token) const {
    const int64_t end = args_.positions[static_cast<size_t>(token)] + 1;
    const int64_t window = args_.sliding_window;
    return {window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
  }
  Span PositionsOfQuery(int64_t query) const { return Positions(tokens_.begin + query / group_); }

  // Calls fn(rows, first position, count) for the pieces of a span that lie in one page; `offset`
  // is that of the keys or the values in a page. The beginning of the next page is asked for ahead:
  // kernels do that only inside one.
  template <typename F>
  void ForPages(Span span, size_t offset, F&& fn) const {
    const KvLayout& layout = *args_.layout;
    const std::span<std::byte* const> pages = args_.pages[static_cast<size_t>(tokens_.begin)];
    for (int64_t p = span.begin; p < span.end;) {
      const int64_t in_page = p % KvLayout::kPageTokens;
      const int64_t count = std::min(KvLayout::kPageTokens - in_page, span.end - p);
      const auto index = static_cast<size_t>(p / KvLayout::kPageTokens);
      if (p + count < span.end) Prefetch(pages[index + 1] + offset);
      fn(pages[index] + offset + static_cast<size_t>(in_page) * layout.row_bytes(), p, count);
      p += count;
    }
  }
  static void Prefetch(const std::byte* rows) {
    for (size_t i = 0; i < kPrefetchedBytes; i += 64) __builtin_prefetch(rows + i);
  }
  // Asks for the beginning of the page that a position begins, if the tokens see it.
  void PrefetchPage(int64_t position, size_t offset) const {
    if (position >= Positions(tokens_.end - 1).end) return;
    const auto& pages = args_.pages[static_cast<size_t>(tokens_.begin)];
    Prefetch(pages[static_cast<size_t>(position / KvLayout::kPageTokens)] + offset);
  }
  size_t keys_offset() const { return args_.layout->KeysOffset(args_.layer, kv_head_); }
  size_t values_offset() const { return args_.layout->ValuesOffset(args_.layer, kv_head_); }

  // Adds the values of a span to `count` queries from number `query` on.
  void AddValues(Span span, int64_t query, int64_t count, int64_t first, const Workspace& w,
                 const Partial& out) const {
    const auto add = is_half() ? table_.attn_values_f16 : table_.attn_values_f32;
    ForPages(span, values_offset(), [&](const std::byte* values, int64_t p, int64_t n) {
      add({w.scores + query * kSplitPositions + (p - first), kSplitPositions, count, values, n,
           head_dim_, out.values + query * head_dim_, head_dim_});
    });
  }

  const kernels::KernelTable& table_;
  const AttentionArgs& args_;
  TokenBlock tokens_;
  int64_t group_;
  int64_t queries_;
  int64_t head_dim_;
  int64_t kv_head_;
};

int64_t TokensPerBlock(const AttentionArgs& args) {
  return std::max<int64_t>(1, kMaxQueries / GroupOf(*args.layout, args.num_heads));
}

// Neighbouring tokens of one sequence, `size` at most to a block.
std::vector<TokenBlock> SplitIntoBlocks(const AttentionArgs& args, int64_t size) {
  std::vector<TokenBlock> blocks;
  for (int64_t begin = 0; begin < args.q.rows;) {
    int64_t end = begin + 1;
    while (end < args.q.rows && end - begin < size &&
           args.pages[static_cast<size_t>(end)].data() ==
               args.pages[static_cast<size_t>(begin)].data()) {
      ++end;
    }
    blocks.push_back({begin, end});
    begin = end;
  }
  return blocks;
}

// A thread computes all splits of a KV head for a block of tokens.
void AttendByHeads(Compute& compute, const AttentionArgs& args) {
  const std::vector<TokenBlock> blocks = SplitIntoBlocks(args, TokensPerBlock(args));
  const int64_t kv_heads = args.layout->num_kv_heads;
  const auto items = static_cast<int64_t>(blocks.size()) * kv_heads;
  compute.team().ParallelFor(items, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const QueryBlock block(compute.kernels(), args, blocks[static_cast<size_t>(i / kv_heads)],
                             i % kv_heads);
      const Workspace w =
          Workspace::At(args.scratch.row(worker), block.queries(), args.layout->head_dim);
      block.CopyQueries(w.q);
      for (int64_t split = 0; split < block.num_splits(); ++split) {
        block.ComputeSplit(split, w, w.split);
        block.Merge(w.total, w.split, split == 0);
      }
      block.WriteResult(w.total);
    }
  });
}

// A split of a KV head for a token is what a thread computes; then all are merged.
void AttendBySplits(Compute& compute, const AttentionArgs& args) {
  const int64_t kv_heads = args.layout->num_kv_heads;
  const int64_t head_dim = args.layout->head_dim;
  const int64_t group = GroupOf(*args.layout, args.num_heads);
  const int64_t longest = *std::max_element(args.positions.begin(), args.positions.end()) + 1;
  const int64_t splits = SplitsOf(longest);
  const int64_t pairs = args.q.rows * kv_heads;
  const auto block_of = [&](int64_t pair) {
    const int64_t token = pair / kv_heads;
    return QueryBlock(compute.kernels(), args, {token, token + 1}, pair % kv_heads);
  };
  const auto partial_of = [&](int64_t pair, int64_t split) {
    return Partial::At(
        args.partial.data + (pair * splits + split) * Partial::Floats(group, head_dim), group);
  };
  compute.team().ParallelFor(pairs * splits, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const QueryBlock block = block_of(i / splits);
      if (i % splits >= block.num_splits()) continue;
      const Workspace w = Workspace::At(args.scratch.row(worker), group, head_dim);
      block.CopyQueries(w.q);
      block.ComputeSplit(i % splits, w, partial_of(i / splits, i % splits));
    }
  });
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const QueryBlock block = block_of(pair);
    for (int64_t split = 1; split < block.num_splits(); ++split) {
      block.Merge(partial_of(pair, 0), partial_of(pair, split), false);
    }
    block.WriteResult(partial_of(pair, 0));
  }
}

}  // namespace

AttentionScratch AttentionScratchFor(const KvLayout& layout, int64_t num_heads, int64_t max_context,
                                     int threads) {
  const int64_t group = GroupOf(layout, num_heads);
  const int64_t pairs = kPairsPerThread * threads - 1;  // the most that are split
  const int64_t split_pairs = pairs / layout.num_kv_heads * layout.num_kv_heads;
  return {.thread_floats = Workspace::Floats(std::max(group, kMaxQueries), layout.head_dim),
          .partial_floats =
              split_pairs * SplitsOf(max_context) * Partial::Floats(group, layout.head_dim)};
}

void Attention(Compute& compute, const AttentionArgs& args) {
  const KvLayout& layout = *args.layout;
  if (args.num_heads % layout.num_kv_heads != 0 || args.scratch.rows < compute.threads() ||
      args.q.cols != args.num_heads * layout.head_dim ||
      args.positions.size() != static_cast<size_t>(args.q.rows)) {
    throw Error(ErrorCode::kInternal, "Attention", "operands do not fit");
  }
  const int64_t longest = *std::max_element(args.positions.begin(), args.positions.end()) + 1;
  const AttentionScratch needed =
      AttentionScratchFor(layout, args.num_heads, longest, compute.threads());
  if (args.scratch.cols < needed.thread_floats || args.partial.cols < needed.partial_floats) {
    throw Error(ErrorCode::kInternal, "Attention", "scratch is too small");
  }
  const bool few_pairs = args.q.rows * layout.num_kv_heads < kPairsPerThread * compute.threads();
  if (few_pairs && SplitsOf(longest) > 1) {
    AttendBySplits(compute, args);
  } else {
    AttendByHeads(compute, args);
  }
}

}  // namespace hearth
