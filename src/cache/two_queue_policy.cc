#include "cache/two_queue_policy.h"

namespace hearth::cache {

void TwoQueuePolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  for (size_t i = 0; i < entries.size(); ++i) {
    PrefetchAhead(batch, i);
    if (entries[i].slot < 0) continue;
    lists_.MoveToHead(kActive, batch.first_key + batch.offsets[i]);
    TrimActive();
  }
}

void TwoQueuePolicy::Resize(int64_t num_slots) noexcept {
  most_active_ = num_slots * kActivePercent / 100;
  TrimActive();
}

void TwoQueuePolicy::TrimActive() noexcept {
  while (lists_.size(kActive) > most_active_) {
    lists_.MoveToHead(kInactive, lists_.tail(kActive));
  }
}

int32_t TwoQueuePolicy::TakeVictim() noexcept {
  const int32_t key = lists_.TakeUnpinned(kInactive);
  return key != kNoKey ? key : lists_.TakeUnpinned(kActive);
}

void TwoQueuePolicy::Seed(int32_t key, int64_t rank, int64_t /*count*/) noexcept {
  lists_.PushHead(rank < most_active_ ? kActive : kInactive, key);
}

}  // namespace hearth::cache
