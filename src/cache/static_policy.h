// What was there at the start stays; nothing else comes in. Internal to src/cache.
#pragma once

#include "cache/policy.h"

namespace hearth::cache {

class StaticPolicy final : public Policy {
 public:
  explicit StaticPolicy(std::span<KeyNode> nodes) : Policy(nodes, 1) {}

  void Touch(const KeyBatch&, std::span<const CacheEntry>) noexcept override {}
  bool Admits(int32_t) const noexcept override { return false; }
  void Insert(int32_t key) noexcept override { lists_.PushHead(0, key); }
  int32_t TakeVictim() noexcept override { return kNoKey; }
};

}  // namespace hearth::cache
