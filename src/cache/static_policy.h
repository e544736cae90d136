// Keys of the warm start stay, and no others come in. Those that lost their slots to a withdrawal
// may come back. Internal to src/cache.
#pragma once

#include "cache/policy.h"

namespace hearth::cache {

class StaticPolicy final : public Policy {
 public:
  explicit StaticPolicy(std::span<KeyNode> nodes) : Policy(nodes, 1) {}

  void Touch(const KeyBatch&, std::span<const CacheEntry>) noexcept override {}
  bool Admits(int32_t key) const noexcept override { return lists_.node(key).value != 0; }
  void Insert(int32_t key) noexcept override { lists_.PushHead(0, key); }
  void Seed(int32_t key, int64_t /*rank*/, int64_t /*count*/) noexcept override {
    lists_.node(key).value = 1;  // was there at the start
    Insert(key);
  }
  int32_t TakeVictim() noexcept override { return kNoKey; }
};

}  // namespace hearth::cache
