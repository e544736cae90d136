// The least recently used entry goes. Internal to src/cache.
#pragma once

#include "cache/policy.h"

namespace hearth::cache {

class LruPolicy final : public Policy {
 public:
  explicit LruPolicy(std::span<KeyNode> nodes) : Policy(nodes, 1) {}

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override { lists_.PushHead(0, key); }
  int32_t TakeVictim() noexcept override { return lists_.TakeUnpinned(0); }
};

}  // namespace hearth::cache
