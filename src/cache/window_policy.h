// The sliding window of LLM in a Flash (Alizadeh et al. 2023): what the last tokens used
// stays, everything else goes, whether its slot is needed or not. Internal to src/cache.
//
// Where the window does not fit, what was not used for longest goes first. There to be compared
// with: what leaves the window while there is room would have been a hit.
#pragma once

#include "cache/policy.h"

namespace hearth::cache {

class WindowPolicy final : public Policy {
 public:
  // Tokens before the current one.
  static constexpr int kTokens = 5;

  explicit WindowPolicy(std::span<KeyNode> nodes) : Policy(nodes, kLists) {}

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override { lists_.PushHead(current_, key); }
  int32_t TakeVictim() noexcept override;
  void EndToken() noexcept override { current_ = (current_ + 1) % kLists; }
  // The list that the next token will fill is that of the token that left the window.
  int32_t TakeExpired() noexcept override { return lists_.TakeUnpinned(current_); }

 private:
  static constexpr int kLists = kTokens + 1;  // by the token that used a key last

  int current_ = 0;
};

}  // namespace hearth::cache
