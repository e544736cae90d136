#include "cache/window_policy.h"

#include <algorithm>

namespace hearth::cache {

void WindowPolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  for (size_t i = 0; i < entries.size(); ++i) {
    PrefetchAhead(batch, i);
    if (entries[i].slot < 0) continue;
    const int32_t key = batch.first_key + batch.offsets[i];
    lists_.MoveToHead(kUsed, key);
    lists_.node(key).value = token_;
  }
}

void WindowPolicy::Insert(int32_t key) noexcept {
  lists_.PushHead(kUsed, key);
  lists_.node(key).value = token_;
}

void WindowPolicy::Seed(int32_t key, int64_t rank, int64_t /*count*/) noexcept {
  Insert(key);
  if (tokens_ == 0) lists_.node(key).value = static_cast<int32_t>(-1 - rank);
}

int32_t WindowPolicy::TakeVictim() noexcept {
  const int32_t key = lists_.TakeUnpinned(kUsed);
  if (key == kNoKey || tokens_ > 0) return key;
  const int32_t token = lists_.node(key).value;
  if (token < token_) left_ = std::max(left_, token);
  return key;
}

void WindowPolicy::EndToken() noexcept {
  ++token_;
  if (tokens_ > 0) left_ = token_ - tokens_ - 1;
}

int32_t WindowPolicy::TakeExpired() noexcept {
  for (;;) {
    const int32_t key = lists_.tail(kUsed);
    if (key == kNoKey || lists_.node(key).value > left_) return kNoKey;
    if (lists_.node(key).pins == 0) {
      lists_.Unlink(key);
      return key;
    }
    // Somebody still uses it.
    lists_.MoveToHead(kUsed, key);
    lists_.node(key).value = token_;
  }
}

}  // namespace hearth::cache
