// The memory of KV pages that no context uses yet: it is lent to a cache of slots, whose last slots
// lie over the pages, and taken back page by page as contexts grow (cache/lent_slots.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/rounding.h"

namespace hearth {

struct LentPages {
  // Pages begin at a multiple of this after the slots that are the cache's alone.
  static constexpr uint64_t kAlignment = 4096;

  int64_t count = 0;
  uint64_t page_bytes = 0;

  uint64_t bytes() const { return static_cast<uint64_t>(count) * page_bytes; }
  // Slots that cover all pages, from the end of other slots on.
  int64_t SlotsOver(uint64_t slot_bytes) const {
    return count == 0 ? 0 : static_cast<int64_t>(DivideUp(bytes() + kAlignment, slot_bytes));
  }
  // Slots that end before the last page does.
  int64_t SlotsWithin(uint64_t slot_bytes) const {
    return static_cast<int64_t>(bytes() / slot_bytes);
  }
  // Of `slots` over the pages, those that are left, at least, while some pages are in use.
  int64_t SlotsLeft(int64_t slots, uint64_t slot_bytes, int64_t pages_in_use) const {
    const uint64_t used = static_cast<uint64_t>(std::min(pages_in_use, count)) * page_bytes;
    if (used == 0) return slots;
    return std::max<int64_t>(slots - static_cast<int64_t>(DivideUp(used, slot_bytes)) - 1, 0);
  }
};

}  // namespace hearth
