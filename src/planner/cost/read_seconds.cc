#include "planner/cost/read_seconds.h"

#include <algorithm>
#include <set>

namespace hearth {
namespace {

// Most of them that pipeline/extents/extent_reader.h has in flight.
constexpr int kExtentDepth = 32;

// How FFNs are read in order.
struct Reads {
  uint64_t bytes = kBusyBlockBytes;  // of each, at most
  uint64_t ahead = 0;                // bytes that are asked for at once
  int most = 0;                      // reads in flight

  int depth() const {
    return static_cast<int>(std::clamp<uint64_t>(ahead / bytes, 1, static_cast<uint64_t>(most)));
  }
};

Reads SequentialReads(const EnginePlan& plan) {
  if (plan.matrices) {
    return {.ahead = static_cast<uint64_t>(plan.extents.read_buffers) *
                     plan.matrices->map().shape().read_bytes,
            .most = kExtentDepth};
  }
  if (!plan.bundles) return {.ahead = kBusyBlockBytes * kBusyQueueDepth, .most = kBusyQueueDepth};
  const StreamShape& shape = plan.bundles->shape;
  const uint64_t range = static_cast<uint64_t>(plan.neurons.range_neurons) * shape.bundle_bytes;
  return {.bytes = std::min(range, StreamPlan::MostReadBytes(shape.bundle_bytes)),
          .ahead = plan.neurons.spare_bytes(shape),
          .most = StreamPlan::kRangeQueueDepth};
}

}  // namespace

double SecondsBeside(double share, double alone, double busy) {
  return alone > busy * share ? alone + busy * (1 - share) : Over(alone, share);
}

double SequentialSeconds(const CostInputs& in, double bytes) {
  const Reads reads = SequentialReads(in.plan);
  return Over(bytes, in.hardware.IoBytesPerSecond(reads.bytes, reads.depth()));
}

double UnpackSeconds(const CostInputs& in, double bytes) {
  return Over(2 * bytes, in.hardware.ForCores(in.cores).read_bytes_per_s.median) +
         SequentialReadCpuSeconds(in, bytes);
}

double SequentialReadCpuSeconds(const CostInputs& in, double bytes) {
  const Reads reads = SequentialReads(in.plan);
  return bytes / static_cast<double>(reads.bytes) *
         in.hardware.IoCpuSecondsPerRead(reads.bytes, reads.depth()) / in.threads();
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
