// The FFNs of one layer and one token on a simulated device, event by event (P2 §4.4). Internal to
// the simulator.
//
//   Pred -> [GIO] -> GC -> [UDIO] -> UDC -> done      of a cluster of listed neurons
//
// A cluster is resident, all of its neurons in memory, or missing, none of them. Pred is over when
// this begins. Compute cores take ready clusters, first come first served; reads are served by the
// device in the order in which they are issued. Times are nanoseconds since any beginning.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "planner/simulator/device_model.h"
#include "planner/simulator/simulator_model.h"

namespace hearth {

enum class SimPipeline : uint8_t {
  kCluster,   // no barrier but the FFN's end
  kMatrix,    // a barrier between gate and the rest; reads overlap with the same matrix only
  kBlocking,  // all reads, then all computing
  kLlmFlash,  // the same with whole bundles that all compute cores read in parallel
  kMmap,  // all neurons, of a mapped file: page faults, then computing. Nothing of it is missing
          // for SimFfn: its pages are read before (simulator.cc)
};
std::span<const SimPipeline> AllSimPipelines();
const char* SimPipelineName(SimPipeline pipeline);  // "cluster", ..., "mmap"

struct SimMissing {
  uint64_t offset = 0;   // of its bundle
  bool goes_on = false;  // its gate fires: the rest is wanted
};

struct SimFfnWork {
  int64_t resident = 0;          // listed neurons in memory
  int64_t resident_goes_on = 0;  // of them, those whose gate fires
  std::vector<SimMissing> missing;
};

struct SimFfnCounts {
  int64_t reads = 0;
  uint64_t bytes = 0;
  int64_t busy_ns = 0;  // of all compute cores together
};

class SimFfn {
 public:
  // Reads go through `flash`; both outlive this. cluster_neurons >= 1.
  SimFfn(const SimDevice& device, const SimModel& model, DeviceModel& flash, SimPipeline pipeline,
         int64_t cluster_neurons);

  // When the layer's FFNs are done that begin at start_ns.
  int64_t Run(const SimFfnWork& work, int64_t start_ns);

  const SimFfnCounts& counts() const { return counts_; }

 private:
  struct Cluster;
  struct Core;
  struct Event;
  class Timeline;

  std::vector<Cluster> ClustersOf(const SimFfnWork& work) const;
  int64_t RunMatrices(std::vector<Cluster>& clusters, int64_t start_ns);
  int64_t RunClusters(std::vector<Cluster>& clusters, int64_t start_ns);
  int64_t ReadAll(std::span<const SimMissing> missing, int64_t start_ns);
  double GateMacs(int64_t neurons) const;
  double RestMacs(int64_t neurons) const;

  const SimDevice& device_;
  const SimModel& model_;
  DeviceModel& flash_;
  const SimPipeline pipeline_;
  const int64_t cluster_neurons_;
  SimFfnCounts counts_;
};

}  // namespace hearth
