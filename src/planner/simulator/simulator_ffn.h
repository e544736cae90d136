// The FFNs of one layer and one token on a simulated device, event by event. Internal to the
// simulator.
//
//   Pred -> [GIO] -> GC -> [UDIO] -> UDC -> done      of a cluster whose gates are read first
//   Pred -> [read] -> computed -> done                of one that is read whole
//
// A cluster is resident, all of its neurons in memory, or missing. Pred is over when this begins.
// Compute cores take ready clusters, first come first served; reads are served by the device in the
// order in which they are issued. Times are nanoseconds since any beginning.
//
// Hearth (pipeline/decode_pipeline.h): a missing neuron is a cluster of its own, cores take as many
// ready ones as the engine's threads do, and reads wait for a place in one queue. PowerInfer-2 (P2
// §4.4): clusters have one size, a core of its own reads them, and computes none.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
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
  kLlmFlash,  // the same with whole bundles; P2's port has all compute cores read in parallel
  kMmap,  // all neurons, of a mapped file: page faults, then computing. Nothing of it is missing
          // for SimFfn: its pages are read before (simulator.cc)
};
std::span<const SimPipeline> AllSimPipelines();
const char* SimPipelineName(SimPipeline pipeline);  // "cluster", ..., "mmap"

// How FFNs are run.
struct SimStrategy {
  SimSystem system = SimSystem::kHearth;
  SimPipeline pipeline = SimPipeline::kCluster;
  int64_t cluster_neurons = 0;  // 0: as the engine shares them out, or the paper's
  bool gates_first = false;     // of Hearth's kCluster; kMatrix and P2's kCluster always do
  uint64_t piece_bytes = 0;     // of Hearth's kCluster: what a read takes at the most; 0: all
  int queue_depth = 128;        // of Hearth: reads that the device is given at once

  // Whether what a gate decides is read after it.
  bool reads_gates_first() const {
    return pipeline == SimPipeline::kMatrix || (pipeline == SimPipeline::kCluster &&
                                                (gates_first || system == SimSystem::kPowerInfer2));
  }
};

struct SimMissing {
  uint64_t offset = 0;    // of its bundle
  bool goes_on = false;   // its gate fires: the rest is wanted
  bool has_gate = false;  // its gate is in memory
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
  // Reads go through `flash`. All outlive this.
  SimFfn(const SimDevice& device, const SimModel& model, DeviceModel& flash,
         const SimStrategy& strategy);

  // When the layer's FFNs are done that begin at start_ns.
  int64_t Run(const SimFfnWork& work, int64_t start_ns);

  const SimFfnCounts& counts() const { return counts_; }

 private:
  struct Cluster;
  struct Event;
  class Timeline;

  bool is_hearth() const { return strategy_.system == SimSystem::kHearth; }
  int64_t MostOfCluster(int64_t left) const;
  std::vector<Cluster> ClustersOf(const SimFfnWork& work) const;
  int64_t RunMatrices(std::vector<Cluster>& clusters, int64_t start_ns);
  int64_t RunClusters(std::vector<Cluster>& clusters, int64_t start_ns);
  int64_t ReadAll(std::span<const SimMissing> missing, int64_t start_ns);
  int64_t Read(uint64_t offset, uint64_t bytes, int64_t now_ns);
  int FirstComputeKind() const;
  double GateMacs(int64_t neurons) const;
  double RestMacs(int64_t neurons) const;

  const SimDevice& device_;
  const SimModel& model_;
  DeviceModel& flash_;
  const SimStrategy strategy_;
  const double cost_;  // of a weight, over that of one in a matrix
  // Of Hearth: when the reads that were issued last are done, as many as may be in flight.
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> in_flight_;
  SimFfnCounts counts_;
};

}  // namespace hearth
