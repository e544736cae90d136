// How the pages of a KV cache are shared out between memory and a file (M §4.1).
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/kv_layout.h"

namespace hearth {

struct KvPlan {
  int64_t tokens = 0;  // of all sequences together
  int64_t slots = 0;   // of the file; 0: all pages are in memory

  int64_t pages() const { return KvLayout::PagesFor(tokens); }
  // Pages in memory. A slot more than there are other pages lets pages change places.
  int64_t frames() const { return slots == 0 ? pages() : pages() + 1 - slots; }
  // What the pages in memory are charged as "kv cache", and the buffers through which the others
  // are read as "kv buffers".
  uint64_t frame_bytes(const KvLayout& layout) const;
  uint64_t buffer_bytes(const KvLayout& layout) const;
  uint64_t memory_bytes(const KvLayout& layout) const {
    return frame_bytes(layout) + buffer_bytes(layout);
  }
};

// The plan with the most pages in memory that takes at most `bytes` there; at least
// `fewest_frames`. Nothing where that cannot be: where there are too few layers, a file saves
// nothing, as two layers' parts of the pages in it have buffers.
std::optional<KvPlan> PlanKv(const KvLayout& layout, int64_t tokens, int64_t fewest_frames,
                             uint64_t bytes);
// The plan that takes the least memory.
KvPlan SmallestKvPlan(const KvLayout& layout, int64_t tokens, int64_t fewest_frames);

}  // namespace hearth
