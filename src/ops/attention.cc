#include "ops/attention.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/query_block.h"

namespace hearth {
namespace {

using attention::GroupOf;
using attention::HeadRange;
using attention::Partial;
using attention::QueryBlock;
using attention::SplitsOf;
using attention::TokenBlock;
using attention::Workspace;

// Queries that read keys and values together: those of a KV head's group for some neighbouring
// tokens. A larger group is still one item.
constexpr int64_t kMaxQueries = 32;
// With fewer (token, KV head) pairs than this per thread, splits are shared out as well.
constexpr int64_t kPairsPerThread = 2;
// Of splits that are shared out, at least so many pieces for each thread: it may have to wait for
// another one's last.
constexpr int64_t kItemsPerThread = 16;

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
  const auto block_of = [&](int64_t item) {
    return QueryBlock(compute.kernels(), args, blocks[static_cast<size_t>(item / kv_heads)],
                      {item % kv_heads, item % kv_heads + 1});
  };
  compute.team().ParallelFor(items, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const QueryBlock block = block_of(i);
      const Workspace w =
          Workspace::At(args.scratch.row(worker), block.queries(), args.layout->head_dim);
      block.CopyQueries(w.q);
      for (int64_t split = 0; split < block.num_splits(); ++split) {
        const std::byte* next = split + 1 < block.num_splits() ? block.FirstKeys(split + 1)
                                : i + 1 < items                ? block_of(i + 1).FirstKeys(0)
                                                               : nullptr;
        block.ComputeSplit(split, w, w.split, next);
        block.Merge(w.total, w.split, split == 0);
      }
      block.WriteResult(w.total);
    }
  });
}

// How many KV heads of a split one thread takes: all, so that it reads what lies together, or half
// of them, and so on, where there would be too few such items to share out.
int64_t HeadsPerItem(const AttentionArgs& args, int64_t splits, int threads) {
  int64_t heads = args.layout->num_kv_heads;
  while (heads % 2 == 0 &&
         args.q.rows * splits * (args.layout->num_kv_heads / heads) < kItemsPerThread * threads) {
    heads /= 2;
  }
  return heads;
}

// A split of some KV heads for a token is what a thread computes; then all are merged.
void AttendBySplits(Compute& compute, const AttentionArgs& args, int64_t splits) {
  const int64_t kv_heads = args.layout->num_kv_heads;
  const int64_t group = GroupOf(*args.layout, args.num_heads);
  const int64_t partial_floats = Partial::Floats(args.num_heads, args.layout->head_dim);
  const int64_t heads = HeadsPerItem(args, splits, compute.threads());
  const int64_t parts = kv_heads / heads;
  // Partials lie by token, then by part of the heads, then by split.
  const auto block_of = [&](int64_t token, int64_t part) {
    return QueryBlock(compute.kernels(), args, {token, token + 1},
                      {part * heads, (part + 1) * heads});
  };
  struct Piece {
    int64_t token, part, split;
  };
  const auto piece_of = [&](int64_t i) {
    return Piece{i / parts / splits, i % parts, i / parts % splits};
  };
  const auto partial_of = [&](int64_t token, int64_t part, int64_t split) {
    const int64_t index = (token * parts + part) * splits + split;
    return Partial::At(args.partial.data + index * (partial_floats / parts), heads * group,
                       args.layout->head_dim);
  };
  const int64_t items = args.q.rows * splits * parts;
  compute.team().ParallelFor(items, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [token, part, split] = piece_of(i);
      const QueryBlock block = block_of(token, part);
      if (split >= block.num_splits()) continue;
      const Workspace w =
          Workspace::At(args.scratch.row(worker), block.queries(), args.layout->head_dim);
      block.CopyQueries(w.q);
      // What this thread takes next mostly lies behind, also where its range ends.
      const Piece following = piece_of(i + 1);
      const std::byte* next =
          i + 1 < items ? block_of(following.token, following.part).FirstKeys(following.split)
                        : nullptr;
      block.ComputeSplit(split, w, partial_of(token, part, split), next);
    }
  });
  compute.team().ParallelFor(args.q.rows * parts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / parts, part = i % parts;
      const QueryBlock block = block_of(token, part);
      const Partial total = partial_of(token, part, 0);
      for (int64_t split = 1; split < block.num_splits(); ++split) {
        block.Merge(total, partial_of(token, part, split), false);
      }
      block.WriteResult(total);
    }
  });
}

// Whether tokens are so few that their splits are shared out, rather than their KV heads.
bool SplitsAreShared(const KvLayout& layout, int64_t tokens, int threads) {
  return tokens == 1 || tokens * layout.num_kv_heads < kPairsPerThread * threads;
}

}  // namespace

AttentionScratch AttentionScratchFor(const KvLayout& layout, int64_t num_heads, int64_t max_context,
                                     int threads) {
  int64_t tokens = 1;  // the most of which splits are shared out
  while (SplitsAreShared(layout, tokens + 1, threads)) ++tokens;
  return {.thread_floats = Workspace::Floats(std::max(num_heads, kMaxQueries), layout.head_dim),
          .partial_floats =
              tokens * SplitsOf(max_context) * Partial::Floats(num_heads, layout.head_dim)};
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
  const int64_t splits = SplitsOf(longest);
  if (splits > 1 && SplitsAreShared(layout, args.q.rows, compute.threads())) {
    AttendBySplits(compute, args, splits);
  } else {
    AttendByHeads(compute, args);
  }
}

}  // namespace hearth
