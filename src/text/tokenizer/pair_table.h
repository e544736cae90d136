// What two neighbouring tokens merge into: a flat hash table by the pair of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/tokenizer/merge.h"

namespace hearth {

class PairTable {
 public:
  // For at most `max_pairs` calls of Insert.
  explicit PairTable(size_t max_pairs = 0) {
    size_t slots = 16;
    while (slots * 2 < max_pairs * 3) slots *= 2;  // at most two thirds full
    slots_.resize(slots);
  }

  // Ids must not be negative. Keeps what was inserted first.
  void Insert(TokenId left, TokenId right, Merge merge) {
    const uint64_t key = Key(left, right);
    Slot& slot = slots_[FindSlot(key)];
    if (slot.key == kFree) slot = {key, merge};
  }

  // Merge::kNever where the pair is unknown; ids may be negative.
  Merge Find(TokenId left, TokenId right) const { return slots_[FindSlot(Key(left, right))].merge; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};  // the key of (-1, -1), which has no merge

  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };

  static uint64_t Key(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  size_t FindSlot(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    // 2^64 divided by the golden ratio spreads consecutive keys; the upper bits are the mixed ones.
    size_t at = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;  // a power of two
};

}  // namespace hearth
