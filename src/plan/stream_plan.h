// How the memory that is left for a packed model's FFNs is shared out where they do not all fit
// (P2 §4.2): neurons that stay, slots of the neuron cache, room for reads.
//
// Neurons lie in a packed file by how often they fire, so what stays is a prefix of every FFN.
// Where gates decide who is computed, those of all neurons stay, and slots hold what is left of a
// bundle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/rounding.h"
#include "plan/cluster_sizes.h"
#include "plan/lent_pages.h"

namespace hearth {

// What a model asks. All its FFNs, experts included, are of one size.
struct StreamShape {
  int64_t num_ffns = 0;       // layers * experts
  int64_t neurons = 0;        // of one FFN
  uint64_t bundle_bytes = 0;  // of one neuron
  // Of it, where gates stay in memory: what is kept of the gate half, and the other half.
  uint64_t gate_bytes = 0;
  uint64_t half_bytes = 0;

  int64_t all_neurons() const { return num_ffns * neurons; }
};

struct StreamPlan {
  bool holds_gates = false;    // of all neurons; slots are second halves of bundles then
  int64_t pinned_neurons = 0;  // the first of every FFN; a multiple of kRangeGrain, or all
  int64_t cache_slots = 0;     // for the others, of all FFNs together
  LentPages lent = {};         // KV pages under further slots of the cache
  // Sequential reads: ranges of so many neurons, so many buffers of them. While single neurons are
  // read, the same memory takes those that find no slot.
  int64_t range_neurons = 0;   // a multiple of kRangeGrain
  int64_t range_buffers = 0;   // at least 2
  int queue_depth = 128;       // reads that the system is given at once
  ClusterSizes clusters = {};  // that threads take of ready neurons

  // Prompts compute this many neurons together (kernels::kRowsOfBatch); ranges must not cut them.
  static constexpr int64_t kRangeGrain = 64;
  // Ranges are read into whole pages of memory: direct reads into parts of pages are slower.
  static constexpr uint64_t kPageBytes = 4096;
  // How many pieces of this size it takes, at least, to end on a page boundary.
  static int64_t PiecesOfPages(uint64_t piece_bytes) {
    return static_cast<int64_t>(kPageBytes / std::gcd(piece_bytes, kPageBytes));
  }
  // The most bytes of one read. Ranges are read in several pieces so that a disk with several
  // channels uses all of them.
  static uint64_t MostReadBytes(uint64_t bundle_bytes) {
    const uint64_t pages = static_cast<uint64_t>(PiecesOfPages(bundle_bytes)) * bundle_bytes;
    return std::max(kReadBytes / pages, uint64_t{1}) * pages;
  }
  static constexpr uint64_t kReadBytes = uint64_t{1} << 20;
  // Reads of ranges that are in flight at once, at most.
  static constexpr int kRangeQueueDepth = 16;

  int64_t pinned_slots(const StreamShape& shape) const { return pinned_neurons * shape.num_ffns; }
  int64_t spare_slots() const { return range_neurons * range_buffers; }
  int64_t lent_slots(const StreamShape& shape) const { return lent.SlotsOver(slot_bytes(shape)); }
  // Slots of the cache while `kv_pages` pages are in use, at most one per key.
  int64_t CacheSlotsBeside(const StreamShape& shape, int64_t kv_pages) const {
    const int64_t keys = std::max<int64_t>(shape.all_neurons() - pinned_slots(shape), 1);
    return std::min(cache_slots + lent.SlotsLeft(lent_slots(shape), slot_bytes(shape), kv_pages),
                    keys);
  }
  // Spare slots start on a page boundary, so a few slots before the first of them may be unused.
  int64_t first_spare_slot(const StreamShape& shape) const {
    return RoundUp(pinned_slots(shape) + cache_slots + lent_slots(shape),
                   PiecesOfPages(slot_bytes(shape)));
  }
  int64_t all_slots(const StreamShape& shape) const {
    return first_spare_slot(shape) + spare_slots();
  }
  uint64_t slot_bytes(const StreamShape& shape) const {
    return holds_gates ? shape.half_bytes : shape.bundle_bytes;
  }
  // Ranges are whole bundles in any case, so that they can be read in long runs.
  uint64_t spare_bytes(const StreamShape& shape) const {
    return static_cast<uint64_t>(spare_slots()) * shape.bundle_bytes;
  }
  // Bytes of all slots, spare ones and KV pages included.
  uint64_t arena_bytes(const StreamShape& shape) const {
    return static_cast<uint64_t>(first_spare_slot(shape)) * slot_bytes(shape) + spare_bytes(shape);
  }
  uint64_t gates_bytes(const StreamShape& shape) const {
    return holds_gates ? static_cast<uint64_t>(shape.all_neurons()) * shape.gate_bytes : 0;
  }
};

// Whether gates are kept in memory where they and the least slots fit.
enum class GatePlace : uint8_t { kInSlots, kInMemory };

// Throws Error(kInvalidArgument), naming the number and its bounds, for a plan that a model of this
// shape cannot be held by.
void CheckStreamPlan(const StreamShape& shape, const StreamPlan& plan);

// The least memory for slots with which a model can run at all.
uint64_t SmallestStreamBytes(const StreamShape& shape);

// The default: gates first, where they are wanted and fit beside the least slots; of what is left
// an eighth for reads, up to a few large ones; of the rest `pinned_share` for the prefixes, and the
// other part for the cache. Takes at most `bytes`. Throws Error(kOutOfBudget) below
// SmallestStreamBytes and Error(kInvalidArgument) for a share outside [0, 1].
StreamPlan PlanStream(const StreamShape& shape, uint64_t bytes, double pinned_share,
                      GatePlace gates = GatePlace::kInSlots);

}  // namespace hearth
