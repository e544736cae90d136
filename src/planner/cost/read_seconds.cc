#include "planner/cost/read_seconds.h"

#include <algorithm>
#include <set>

namespace hearth {
namespace {

// Sequential reads are of this size, a few in flight.
constexpr uint64_t kSequentialBlock = kBusyBlockBytes;
constexpr int kSequentialDepth = kBusyQueueDepth;
// Most of them that pipeline/extents/extent_reader.h has in flight.
constexpr int kExtentDepth = 32;

// How many sequential reads are in flight.
int SequentialDepth(const EnginePlan& plan) {
  if (!plan.matrices) return kSequentialDepth;
  const uint64_t ahead =
      static_cast<uint64_t>(plan.extents.read_buffers) * plan.matrices->map().shape().read_bytes;
  return static_cast<int>(std::clamp<uint64_t>(ahead / kSequentialBlock, 1, kExtentDepth));
}

}  // namespace

double SecondsBeside(double share, double alone, double busy) {
  return alone > busy * share ? alone + busy * (1 - share) : Over(alone, share);
}

double SequentialSeconds(const CostInputs& in, double bytes) {
  return Over(bytes, in.hardware.IoBytesPerSecond(kSequentialBlock, SequentialDepth(in.plan)));
}

double UnpackSeconds(const CostInputs& in, double bytes) {
  return Over(2 * bytes, in.hardware.ForCores(in.cores).read_bytes_per_s.median) +
         SequentialReadCpuSeconds(in, bytes);
}

double SequentialReadCpuSeconds(const CostInputs& in, double bytes) {
  const double reads = bytes / static_cast<double>(kSequentialBlock);
  return reads * in.hardware.IoCpuSecondsPerRead(kSequentialBlock, SequentialDepth(in.plan)) /
         in.threads();
}

ReadClock::ReadClock(const HardwareProfile& hardware, uint64_t bytes, uint64_t range_bytes,
                     int queue_depth) {
  const double gain = hardware.IoRangeGain(bytes, range_bytes);
  std::set<int> depths;
  for (const IoSpeed& read : hardware.storage.reads) {
    if (read.queue_depth <= queue_depth) depths.insert(read.queue_depth);
  }
  if (depths.empty()) depths.insert(queue_depth);
  for (const int depth : depths) {
    const double seconds = hardware.IoBatchSeconds(bytes, depth) / gain;
    // More reads never take less time, whatever a noisy measurement says.
    points_.push_back({static_cast<double>(depth), std::max(seconds, points_.back().seconds)});
  }
  const auto seconds_of = [&](uint64_t size) {
    return Over(static_cast<double>(size), gain * hardware.IoBytesPerSecond(size, queue_depth));
  };
  further_ = seconds_of(bytes);
  byte_ = std::max(0.0, seconds_of(2 * bytes) - further_) / static_cast<double>(bytes);
}

double ReadClock::SecondsOfEqual(double reads) const {
  const Point& last = points_.back();
  if (reads >= last.reads) return last.seconds + (reads - last.reads) * further_;
  const auto above = std::find_if(points_.begin(), points_.end(),
                                  [&](const Point& point) { return point.reads > reads; });
  const Point &high = *above, &low = *(above - 1);
  return low.seconds +
         (high.seconds - low.seconds) * (reads - low.reads) / (high.reads - low.reads);
}

}  // namespace hearth
