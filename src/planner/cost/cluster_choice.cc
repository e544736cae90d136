#include "planner/cost/cluster_choice.h"

#include <algorithm>
#include <cmath>

namespace hearth {
namespace {

// The most that threads may spend on taking clusters, as a share of computing them. What a parallel
// section costs, which was measured, stands for the cost of taking one, which is less.
constexpr double kTakingShare = 0.04;
constexpr int64_t kFewestLow = 8, kFewestHigh = 64;
// Sizes are multiples of this.
constexpr double kStep = 8;

int64_t InSteps(double neurons, int64_t low, int64_t high) {
  const double bounded = std::clamp(neurons, static_cast<double>(low), static_cast<double>(high));
  return std::clamp(static_cast<int64_t>(kStep * std::round(bounded / kStep)), low, high);
}

}  // namespace

ClusterSizes ChooseClusters(const HardwareProfile& hardware, std::span<const int> cores,
                            uint64_t bundle_bytes, int queue_depth) {
  const ThreadSpeed speed = hardware.ForCores(cores);
  const double of_one = speed.dot_bytes_per_s.median / static_cast<double>(cores.size());
  const double read = hardware.IoBytesPerSecond(bundle_bytes, queue_depth);
  ClusterSizes sizes;
  if (!(of_one > 0) || !(read > 0) || bundle_bytes == 0) return sizes;
  const double neuron_seconds = static_cast<double>(bundle_bytes) / of_one;
  const double queue_seconds = queue_depth * static_cast<double>(bundle_bytes) / read;
  sizes.fewest = InSteps(speed.section_seconds.median / kTakingShare / neuron_seconds, kFewestLow,
                         kFewestHigh);
  sizes.most = InSteps(queue_seconds / neuron_seconds, sizes.fewest, ClusterSizes::kLimit);
  return sizes;
}

}  // namespace hearth
