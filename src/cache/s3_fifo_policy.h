// S3-FIFO (Yang et al. 2023). Internal to src/cache.
//
// A new entry joins the head of *small*, a tenth of the slots; accesses only count (up to 3). What
// reaches the tail of small moves to *main* if it was accessed there, else it is evicted and its
// key remembered in *ghost*, which has as many keys as main has slots; a key that comes back from
// there joins main at once. What reaches the tail of main with a count goes round again with one
// less.
#pragma once

#include "cache/policy.h"

namespace hearth::cache {

class S3FifoPolicy final : public Policy {
 public:
  S3FifoPolicy(std::span<KeyNode> nodes, int32_t num_slots);

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override;
  int32_t TakeVictim() noexcept override;
  void Resize(int64_t num_slots) noexcept override;

 private:
  static constexpr int kSmall = 0, kMain = 1, kGhost = 2;
  static constexpr int32_t kMaxCount = 3;

  int32_t TakeFromSmall() noexcept;
  int32_t TakeFromMain() noexcept;
  void Remember(int32_t key) noexcept;

  int64_t small_slots_ = 0;
  int64_t main_slots_ = 0;
};

}  // namespace hearth::cache
