// How the memory that is left for a packed model's FFNs is shared out where they do not all fit
// (DESIGN sections 5 and 6): neurons that stay, slots of the neuron cache, room for reads.
//
// Neurons lie in a packed file by how often they fire, so what stays is a prefix of every FFN.
#pragma once

#include <cstdint>

namespace hearth {

// What a model asks. All its FFNs, experts included, are of one size.
struct StreamShape {
  int64_t num_ffns = 0;     // layers * experts
  int64_t neurons = 0;      // of one FFN
  uint64_t slot_bytes = 0;  // of one neuron

  int64_t all_neurons() const { return num_ffns * neurons; }
};

struct StreamPlan {
  int64_t pinned_neurons = 0;  // the first of every FFN; a multiple of kRangeGrain, or all
  int64_t cache_slots = 0;     // for the others, of all FFNs together
  // Sequential reads: ranges of so many neurons, so many buffers of them. While single neurons are
  // read, the same memory takes those that find no slot.
  int64_t range_neurons = 0;  // a multiple of kRangeGrain
  int64_t range_buffers = 0;  // at least 2
  int queue_depth = 64;       // reads that the system is given at once

  // Prompts compute this many neurons together (kernels::kRowsOfBatch); ranges must not cut them.
  static constexpr int64_t kRangeGrain = 64;

  int64_t pinned_slots(const StreamShape& shape) const { return pinned_neurons * shape.num_ffns; }
  int64_t spare_slots() const { return range_neurons * range_buffers; }
  int64_t all_slots(const StreamShape& shape) const {
    return pinned_slots(shape) + cache_slots + spare_slots();
  }
};

// The least memory for slots with which a model can run at all.
uint64_t SmallestStreamBytes(const StreamShape& shape);

// The default: an eighth for reads, up to a few large ones; of the rest `pinned_share` for the
// prefixes, and the other part for the cache. Takes at most `bytes`. Throws Error(kOutOfBudget)
// below SmallestStreamBytes and Error(kInvalidArgument) for a share outside [0, 1].
StreamPlan PlanStream(const StreamShape& shape, uint64_t bytes, double pinned_share);

}  // namespace hearth
