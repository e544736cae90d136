#include "cache/window_policy.h"

namespace hearth::cache {

void WindowPolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  for (size_t i = 0; i < entries.size(); ++i) {
    PrefetchAhead(batch, i);
    if (entries[i].slot >= 0) lists_.MoveToHead(current_, batch.first_key + batch.offsets[i]);
  }
}

int32_t WindowPolicy::TakeVictim() noexcept {
  for (int next = 1; next <= kLists; ++next) {
    const int32_t key = lists_.TakeUnpinned((current_ + next) % kLists);
    if (key != kNoKey) return key;
  }
  return kNoKey;
}

}  // namespace hearth::cache
