// The sliding window of LLM in a Flash (Alizadeh et al. 2023): what the last tokens used stays.
// Internal to src/cache.
//
// The window has a number of tokens, or as many as there are slots for. Where it has a number, what
// no token in it used leaves at once, room or not. Where it has none, the oldest token leaves when
// a slot is needed, and with it all that only it used.
#pragma once

#include <cstdint>

#include "cache/policy.h"

namespace hearth::cache {

class WindowPolicy final : public Policy {
 public:
  // tokens: before the current one; 0: as many as there are slots for.
  WindowPolicy(std::span<KeyNode> nodes, int32_t tokens) : Policy(nodes, 1), tokens_(tokens) {}

  void Touch(const KeyBatch& batch, std::span<const CacheEntry> entries) noexcept override;
  void Insert(int32_t key) noexcept override;
  int32_t TakeVictim() noexcept override;
  // Seeded keys count as used by one earlier token each, the hottest by the latest.
  void Seed(int32_t key, int64_t rank, int64_t count) noexcept override;
  void EndToken() noexcept override;
  int32_t TakeExpired() noexcept override;

 private:
  // All keys with a slot, by their last use; KeyNode::value is the token that used them last.
  static constexpr int kUsed = 0;

  const int32_t tokens_;
  int32_t token_ = 0;         // the current one
  int32_t left_ = INT32_MIN;  // the last one that is out of the window
};

}  // namespace hearth::cache
