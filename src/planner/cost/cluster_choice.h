// How many neurons a thread should take at a time, from what was measured of a machine (P2 §3.1).
#pragma once

#include <cstdint>
#include <span>

#include "plan/cluster_sizes.h"
#include "planner/doctor/hardware.h"

namespace hearth {

// Of bundles of so many bytes, of which queue_depth reads are in flight at once, and one thread on
// each of these processors. At least so many that taking them costs little beside computing them,
// and no more than one thread computes while storage serves all reads in flight: whoever computes
// for longer comes back to a queue that has run dry.
ClusterSizes ChooseClusters(const HardwareProfile& hardware, std::span<const int> cores,
                            uint64_t bundle_bytes, int queue_depth);

}  // namespace hearth
