#include "cache/s3_fifo_policy.h"

#include <algorithm>

namespace hearth::cache {

S3FifoPolicy::S3FifoPolicy(std::span<KeyNode> nodes, int32_t num_slots) : Policy(nodes, 3) {
  Resize(num_slots);
}

void S3FifoPolicy::Resize(int64_t num_slots) noexcept {
  small_slots_ = std::max<int64_t>(1, num_slots / 10);
  main_slots_ = std::max<int64_t>(0, num_slots - small_slots_);
  while (lists_.size(kGhost) > main_slots_) lists_.Unlink(lists_.tail(kGhost));
}

void S3FifoPolicy::Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].slot < 0) continue;
    KeyNode& node = lists_.node(batch.first_key + batch.offsets[i]);
    node.value = std::min(node.value + 1, kMaxCount);
  }
}

void S3FifoPolicy::Insert(int32_t key) noexcept {
  KeyNode& node = lists_.node(key);
  node.value = 0;
  if (node.list != kGhost) return lists_.PushHead(kSmall, key);
  lists_.MoveToHead(kMain, key);
}

int32_t S3FifoPolicy::TakeVictim() noexcept {
  if (lists_.size(kSmall) >= small_slots_) {
    const int32_t key = TakeFromSmall();
    if (key != kNoKey) return key;
  }
  const int32_t key = TakeFromMain();
  return key != kNoKey ? key : TakeFromSmall();
}

int32_t S3FifoPolicy::TakeFromSmall() noexcept {
  for (;;) {
    const int32_t key = lists_.TakeUnpinned(kSmall);
    if (key == kNoKey) return kNoKey;
    KeyNode& node = lists_.node(key);
    if (node.value == 0) {
      Remember(key);
      return key;
    }
    node.value = 0;
    lists_.PushHead(kMain, key);
    if (lists_.size(kMain) > main_slots_) return TakeFromMain();
  }
}

int32_t S3FifoPolicy::TakeFromMain() noexcept {
  for (;;) {
    const int32_t key = lists_.TakeUnpinned(kMain);
    if (key == kNoKey) return kNoKey;
    KeyNode& node = lists_.node(key);
    if (node.value == 0) return key;
    --node.value;
    lists_.PushHead(kMain, key);
  }
}

void S3FifoPolicy::Remember(int32_t key) noexcept {
  if (main_slots_ == 0) return;
  if (lists_.size(kGhost) >= main_slots_) lists_.Unlink(lists_.tail(kGhost));
  lists_.PushHead(kGhost, key);
}

}  // namespace hearth::cache
