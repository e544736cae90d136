// What a look-up asks and answers.
#pragma once

#include <cstdint>
#include <span>

namespace hearth {

// Keys of one layer: first_key + offset for each offset. The offsets are distinct.
struct KeyBatch {
  int32_t first_key = 0;
  std::span<const int32_t> offsets;

  int64_t size() const noexcept { return static_cast<int64_t>(offsets.size()); }
  int32_t key(int64_t i) const noexcept { return first_key + offsets[static_cast<size_t>(i)]; }
};

enum class CacheFound : uint8_t {
  kHit,      // its bytes are in the slot
  kPending,  // an earlier look-up has its read under way into the slot
  kMiss,     // the slot is its own from now on; the caller reads into it
  kNoSlot,   // absent, and no slot can be had: the caller reads into a buffer of its own
};

struct CacheEntry {
  int32_t slot = -1;  // -1 with kNoSlot
  CacheFound found = CacheFound::kNoSlot;
};

}  // namespace hearth
