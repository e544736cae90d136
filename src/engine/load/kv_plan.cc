#include "engine/load/kv_plan.h"

#include <algorithm>

#include "kv/kv_cache.h"

namespace hearth {
namespace {

KvPlan WithFrames(int64_t tokens, int64_t frames) {
  const int64_t pages = KvLayout::PagesFor(tokens);
  return {.tokens = tokens, .slots = frames >= pages ? 0 : pages + 1 - frames};
}

}  // namespace

uint64_t KvPlan::frame_bytes(const KvLayout& layout) const {
  return KvPool::ChargedBytes(layout, slots == 0 ? tokens : frames() * KvLayout::kPageTokens);
}

uint64_t KvPlan::buffer_bytes(const KvLayout& layout) const {
  return slots == 0 ? 0 : KvFlash::ChargedBytes(layout, slots);
}

std::optional<KvPlan> PlanKv(const KvLayout& layout, int64_t tokens, int64_t fewest_frames,
                             uint64_t bytes) {
  const auto fits = [&](int64_t frames) {
    return WithFrames(tokens, frames).memory_bytes(layout) <= bytes;
  };
  const int64_t pages = KvLayout::PagesFor(tokens);
  if (fits(pages)) return WithFrames(tokens, pages);
  const KvPlan smallest = SmallestKvPlan(layout, tokens, fewest_frames);
  if (smallest.slots == 0 || smallest.memory_bytes(layout) > bytes) return std::nullopt;
  // More frames take more memory where a file saves any.
  int64_t most = smallest.frames(), too_many = pages;
  while (too_many - most > 1) {
    const int64_t middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return WithFrames(tokens, most);
}

KvPlan SmallestKvPlan(const KvLayout& layout, int64_t tokens, int64_t fewest_frames) {
  const KvPlan whole = WithFrames(tokens, KvLayout::PagesFor(tokens));
  const KvPlan least = WithFrames(tokens, fewest_frames);
  return least.memory_bytes(layout) < whole.memory_bytes(layout) ? least : whole;
}

}  // namespace hearth
