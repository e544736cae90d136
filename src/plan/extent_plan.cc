#include "plan/extent_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace hearth {
namespace {

constexpr int64_t kFewestBuffers = 2;
constexpr int64_t kMostBuffers = 64;
// In flight, a disk reads at its sequential speed with half of these; with as many it also has
// something to read while attention and the extents in memory are computed.
constexpr uint64_t kReadAheadBytes = uint64_t{32} << 20;

constexpr ExtentPlan kSmallest = {.cache_slots = 1, .read_buffers = kFewestBuffers};

}  // namespace

uint64_t SmallestExtentBytes(const ExtentShape& shape) { return kSmallest.ChargedBytes(shape); }

ExtentPlan PlanExtents(const ExtentShape& shape, uint64_t bytes) {
  if (bytes < SmallestExtentBytes(shape)) {
    throw Error(ErrorCode::kOutOfBudget, "plan", "memory for FFNs",
                "at least " + FormatSize(SmallestExtentBytes(shape)), FormatSize(bytes));
  }
  const uint64_t ahead = std::min(kReadAheadBytes, bytes / 8);
  ExtentPlan plan = kSmallest;
  plan.read_buffers =
      std::clamp(static_cast<int64_t>(ahead / shape.read_bytes), kFewestBuffers, kMostBuffers);
  plan.cache_slots = 0;
  const uint64_t left = bytes - plan.ChargedBytes(shape);
  plan.cache_slots = std::clamp<int64_t>(static_cast<int64_t>(left / shape.slot_bytes), 1,
                                         std::max<int64_t>(shape.num_extents, 1));
  return plan;
}

}  // namespace hearth
