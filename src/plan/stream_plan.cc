#include "plan/stream_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace hearth {
namespace {

constexpr int64_t kGrain = StreamPlan::kRangeGrain;
// With ranges of some 15 MB a disk reads at its sequential speed and sections of the team cost
// nothing beside the work; more than three buffers only take room from the cache.
constexpr int64_t kMostRangeNeurons = 2048;
constexpr int64_t kRangeBuffers = 3;
constexpr int64_t kFewestSpareSlots = 2 * kGrain;
constexpr int64_t kFewestCacheSlots = 1;
// What a plan of somebody's own may ask.
constexpr int64_t kMostRangeBuffers = 64;
constexpr int64_t kMostQueueDepth = 4096;

int64_t RoundDown(int64_t value, int64_t unit) { return value / unit * unit; }

}  // namespace

void CheckStreamPlan(const StreamShape& shape, const StreamPlan& plan) {
  const auto check = [](const char* what, int64_t value, int64_t least, int64_t most,
                        int64_t unit) {
    if (value >= least && value <= most && value % unit == 0) return;
    throw Error(ErrorCode::kInvalidArgument, "plan", what,
                "from " + std::to_string(least) + " to " + std::to_string(most) +
                    (unit > 1 ? ", a multiple of " + std::to_string(unit) : ""),
                std::to_string(value));
  };
  const int64_t whole_ranges = (shape.neurons + kGrain - 1) / kGrain * kGrain;
  const bool pins_all = plan.pinned_neurons == shape.neurons;
  check("pinned neurons of an FFN", plan.pinned_neurons, 0, shape.neurons, pins_all ? 1 : kGrain);
  check("slots of the neuron cache", plan.cache_slots, kFewestCacheSlots,
        std::max(shape.all_neurons() - plan.pinned_slots(shape), kFewestCacheSlots), 1);
  check("neurons of a range", plan.range_neurons, kGrain, whole_ranges, kGrain);
  check("ranges that are read at once", plan.range_buffers, 2, kMostRangeBuffers, 1);
  check("reads that are in flight at once", plan.queue_depth, 1, kMostQueueDepth, 1);
  check("the most neurons of a cluster", plan.clusters.most, 1, ClusterSizes::kLimit, 1);
  check("the fewest neurons of a cluster", plan.clusters.fewest, 1, plan.clusters.most, 1);
}

uint64_t SmallestStreamBytes(const StreamShape& shape) {
  const uint64_t kinds[] = {shape.bundle_bytes, shape.half_bytes};
  uint64_t cache = 0;
  for (const uint64_t slot : kinds) {
    const int64_t slots = RoundUp(kFewestCacheSlots, StreamPlan::PiecesOfPages(slot));
    cache = std::max(cache, static_cast<uint64_t>(slots) * slot);
  }
  return static_cast<uint64_t>(kFewestSpareSlots) * shape.bundle_bytes + cache;
}

StreamPlan PlanStream(const StreamShape& shape, uint64_t bytes, double pinned_share,
                      GatePlace gates) {
  if (!(pinned_share >= 0 && pinned_share <= 1)) {
    throw Error(ErrorCode::kInvalidArgument, "plan", "share of memory for pinned neurons",
                "from 0 to 1", std::to_string(pinned_share));
  }
  if (bytes < SmallestStreamBytes(shape)) {
    throw Error(ErrorCode::kOutOfBudget, "plan", "memory for neurons",
                "at least " + FormatSize(SmallestStreamBytes(shape)), FormatSize(bytes));
  }
  StreamPlan plan;
  plan.holds_gates = gates == GatePlace::kInMemory;
  if (plan.gates_bytes(shape) + SmallestStreamBytes(shape) > bytes) plan.holds_gates = false;
  const uint64_t for_slots = bytes - plan.gates_bytes(shape);
  const int64_t eighth = static_cast<int64_t>(for_slots / shape.bundle_bytes) / 8;
  const int64_t most_range =
      std::min(kMostRangeNeurons, (shape.neurons + kGrain - 1) / kGrain * kGrain);
  plan.range_buffers = eighth >= kRangeBuffers * kGrain ? kRangeBuffers : 2;
  plan.range_neurons =
      std::clamp(RoundDown(eighth / plan.range_buffers, kGrain), kGrain, most_range);
  const int64_t left = RoundDown(
      static_cast<int64_t>((for_slots - plan.spare_bytes(shape)) / plan.slot_bytes(shape)),
      StreamPlan::PiecesOfPages(plan.slot_bytes(shape)));
  const auto wanted =
      static_cast<int64_t>(static_cast<double>(left - kFewestCacheSlots) * pinned_share);
  plan.pinned_neurons = std::min(RoundDown(wanted / shape.num_ffns, kGrain), shape.neurons);
  const int64_t streamed = shape.all_neurons() - plan.pinned_slots(shape);
  plan.cache_slots = std::clamp(left - plan.pinned_slots(shape), kFewestCacheSlots,
                                std::max(streamed, kFewestCacheSlots));
  return plan;
}

}  // namespace hearth
