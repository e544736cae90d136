// KV pages whose memory a cache of slots uses until contexts need it (cache/lent_slots.h): how many
// slots lie over them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/rounding.h"

namespace hearth {

struct LentPages {
  // Pages begin at the first multiple of this after the slots that lie over no page.
  static constexpr uint64_t kAlignment = 4096;

  int64_t count = 0;
  uint64_t page_bytes = 0;

  uint64_t bytes() const { return static_cast<uint64_t>(count) * page_bytes; }
  // Slots that it takes to cover all pages, wherever the first of these slots begins.
  int64_t SlotsOver(uint64_t slot_bytes) const {
    return count == 0 ? 0 : static_cast<int64_t>(DivideUp(bytes() + kAlignment, slot_bytes));
  }
  // Slots that fit into the memory of the pages.
  int64_t SlotsWithin(uint64_t slot_bytes) const {
    return static_cast<int64_t>(bytes() / slot_bytes);
  }
  // Returns how many of `slots` over the pages are left, at least, while the first `pages_in_use`
  // pages are in use.
  int64_t SlotsLeft(int64_t slots, uint64_t slot_bytes, int64_t pages_in_use) const {
    const uint64_t used = static_cast<uint64_t>(std::min(pages_in_use, count)) * page_bytes;
    if (used == 0) return slots;
    return std::max<int64_t>(slots - static_cast<int64_t>(DivideUp(used, slot_bytes)) - 1, 0);
  }
};

}  // namespace hearth
