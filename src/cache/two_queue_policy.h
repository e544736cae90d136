// P2 §4.2's two queues. Internal to src/cache.
//
// A new entry joins the head of *inactive*; a second access takes it to the head of *active*, and
// so does every later one. Where active holds more than 90% of the slots, its tail goes to the head
// of inactive. The tail of inactive is evicted; with all of inactive in use, the tail of active.
#pragma once

#include "cache/policy.h"

namespace hearth::cache {

class TwoQueuePolicy final : public Policy {
 public:
  TwoQueuePolicy(std::span<KeyNode> nodes, int32_t num_slots) : Policy(nodes, 2) {
    Resize(num_slots);
  }

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override { lists_.PushHead(kInactive, key); }
  int32_t TakeVictim() noexcept override;
  void Resize(int64_t num_slots) noexcept override;
  // The hottest join active, the rest inactive.
  void Seed(int32_t key, int64_t rank, int64_t count) noexcept override;

 private:
  static constexpr int kActivePercent = 90;
  static constexpr int kInactive = 0;
  static constexpr int kActive = 1;

  void TrimActive() noexcept;

  int64_t most_active_ = 0;
};

}  // namespace hearth::cache
