// How the memory that is left for the FFNs of a model that is not packed is shared out where they
// do not all fit. Their matrices, those of single experts in a mixture, are held and read in
// extents: runs of rows.
#pragma once

#include <cstdint>

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

  // What the two take, with a slot more for an extent that is not kept.
  uint64_t ChargedBytes(const ExtentShape& shape) const {
    return static_cast<uint64_t>(cache_slots + 1) * shape.slot_bytes +
           static_cast<uint64_t>(read_buffers) * shape.read_bytes;
  }
};

// The least memory with which a model can run at all.
uint64_t SmallestExtentBytes(const ExtentShape& shape);

// Buffers for what keeps a disk busy, at most an eighth of `bytes`; slots for the rest. Throws
// Error(kOutOfBudget) below SmallestExtentBytes.
ExtentPlan PlanExtents(const ExtentShape& shape, uint64_t bytes);

}  // namespace hearth
