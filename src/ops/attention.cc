#include "ops/attention.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hearth {
namespace {

// The keys and values of one KV head, page by page.
class HeadPages {
 public:
  HeadPages(const AttentionArgs& args, int64_t token, int64_t kv_head)
      : layout_(*args.layout),
        pages_(args.pages[static_cast<size_t>(token)]),
        keys_offset_(layout_.KeysOffset(args.layer, kv_head)),
        values_offset_(layout_.ValuesOffset(args.layer, kv_head)) {}

  // Calls fn(keys, values, first position, count) for the pages that cover [begin, end).
  template <typename F>
  void ForPages(int64_t begin, int64_t end, F&& fn) const {
    for (int64_t p = begin; p < end;) {
      const int64_t in_page = p % KvLayout::kPageTokens;
      const int64_t count = std::min(KvLayout::kPageTokens - in_page, end - p);
      const std::byte* page = pages_[static_cast<size_t>(p / KvLayout::kPageTokens)];
      const auto skip = static_cast<size_t>(in_page) * layout_.row_bytes();
      fn(page + keys_offset_ + skip, page + values_offset_ + skip, p, count);
      p += count;
    }
  }

 private:
  const KvLayout& layout_;
  std::span<std::byte* const> pages_;
  size_t keys_offset_;
  size_t values_offset_;
};

void AttendHead(const kernels::KernelTable& table, const AttentionArgs& args, int64_t token,
                int64_t head, float* scores) {
  const KvLayout& layout = *args.layout;
  const int64_t head_dim = layout.head_dim;
  const bool half = layout.dtype == DType::kF16;
  const int64_t kv_head = head / (args.num_heads / layout.num_kv_heads);
  const float* q = args.q.row(token) + head * head_dim;
  float* out = args.out.row(token) + head * head_dim;
  const int64_t end = args.positions[static_cast<size_t>(token)] + 1;
  const int64_t begin =
      args.sliding_window > 0 ? std::max<int64_t>(0, end - args.sliding_window) : 0;
  const HeadPages pages(args, token, kv_head);
  pages.ForPages(begin, end, [&](const std::byte* keys, const std::byte*, int64_t p, int64_t n) {
    if (half) {
      table.attn_scores_f16(q, reinterpret_cast<const uint16_t*>(keys), n, head_dim,
                            scores + (p - begin));
    } else {
      table.attn_scores_f32(q, reinterpret_cast<const float*>(keys), n, head_dim,
                            scores + (p - begin));
    }
  });
  table.softmax(scores, end - begin);
  std::memset(out, 0, static_cast<size_t>(head_dim) * sizeof(float));
  pages.ForPages(begin, end, [&](const std::byte*, const std::byte* values, int64_t p, int64_t n) {
    if (half) {
      table.attn_values_f16(scores + (p - begin), reinterpret_cast<const uint16_t*>(values), n,
                            head_dim, out);
    } else {
      table.attn_values_f32(scores + (p - begin), reinterpret_cast<const float*>(values), n,
                            head_dim, out);
    }
  });
}

}  // namespace

void Attention(Compute& compute, const AttentionArgs& args) {
  if (args.num_heads % args.layout->num_kv_heads != 0 || args.scores.rows < compute.threads() ||
      args.q.cols != args.num_heads * args.layout->head_dim ||
      args.positions.size() != static_cast<size_t>(args.q.rows)) {
    throw Error(ErrorCode::kInternal, "Attention", "operands do not fit");
  }
  const int64_t items = args.q.rows * args.num_heads;
  compute.team().ParallelFor(items, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      AttendHead(compute.kernels(), args, i / args.num_heads, i % args.num_heads,
                 args.scores.row(worker));
    }
  });
}

}  // namespace hearth
