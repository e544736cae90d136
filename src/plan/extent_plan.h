// How the memory that is left for the FFNs of a model that is not packed is shared out where they
// do not all fit. Their matrices, those of single experts in a mixture, are held and read in
// extents: runs of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plan/lent_pages.h"

namespace hearth {

// What a model asks.
struct ExtentShape {
  int64_t num_extents = 0;  // of all FFNs
  uint64_t slot_bytes = 0;  // of the largest extent in memory
  uint64_t read_bytes = 0;  // of the largest as it is read
};

struct ExtentPlan {
  int64_t cache_slots = 0;   // extents that are kept
  int64_t read_buffers = 0;  // extents that are being read, at least 2
  LentPages lent = {};       // KV pages under further slots

  // Bytes of slots and buffers, with one more slot for an extent that is not kept.
  uint64_t ChargedBytes(const ExtentShape& shape) const {
    return SlotsBytes(shape) + static_cast<uint64_t>(read_buffers) * shape.read_bytes;
  }
  // Bytes of the slots alone, KV pages included.
  uint64_t SlotsBytes(const ExtentShape& shape) const {
    const uint64_t own = static_cast<uint64_t>(cache_slots + 1) * shape.slot_bytes;
    return lent.count == 0 ? own : own + LentPages::kAlignment + lent.bytes();
  }
  // Extents that are kept while `kv_pages` KV pages are in use, at most all.
  int64_t SlotsBeside(const ExtentShape& shape, int64_t kv_pages) const {
    const int64_t over = lent.SlotsWithin(shape.slot_bytes);
    return std::min(cache_slots + lent.SlotsLeft(over, shape.slot_bytes, kv_pages),
                    std::max<int64_t>(shape.num_extents, 1));
  }
};

// The least memory with which a model can run at all.
uint64_t SmallestExtentBytes(const ExtentShape& shape);

// Buffers for what keeps a disk busy, at most an eighth of `bytes`; slots for the rest. Throws
// Error(kOutOfBudget) below SmallestExtentBytes.
ExtentPlan PlanExtents(const ExtentShape& shape, uint64_t bytes);

}  // namespace hearth
