#include "planner/simulator/simulator_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>

#include "base/rounding.h"

namespace hearth {

std::span<const SimPipeline> AllSimPipelines() {
  static constexpr std::array kAll = {SimPipeline::kCluster, SimPipeline::kMatrix,
                                      SimPipeline::kBlocking, SimPipeline::kLlmFlash,
                                      SimPipeline::kMmap};
  return kAll;
}

const char* SimPipelineName(SimPipeline pipeline) {
  switch (pipeline) {
    case SimPipeline::kCluster:
      return "cluster";
    case SimPipeline::kMatrix:
      return "matrix";
    case SimPipeline::kBlocking:
      return "blocking";
    case SimPipeline::kLlmFlash:
      return "llmflash";
    case SimPipeline::kMmap:
      return "mmap";
  }
  return "?";
}

struct SimFfn::Cluster {
  int64_t neurons = 0;
  int64_t goes_on = 0;
  std::span<const SimMissing> missing;  // empty: resident
};

enum class SimStage : uint8_t { kGateRead, kGate, kRestRead, kRest };

struct SimFfn::Event {
  int64_t at_ns = 0;
  int64_t order = 0;  // of events at the same time
  SimStage stage = SimStage::kGate;
  size_t cluster = 0;
  size_t core = 0;  // of kGate and kRest

  bool operator>(const Event& other) const {
    return std::tie(at_ns, order) > std::tie(other.at_ns, other.order);
  }
};

// The events between two barriers.
class SimFfn::Timeline {
 public:
  Timeline(SimFfn& ffn, std::vector<Cluster>& clusters, int64_t start_ns)
      : ffn_(ffn), clusters_(clusters), now_ns_(start_ns), end_ns_(start_ns) {
    for (size_t kind = 0; kind < ffn.device_.cores.size(); ++kind) {
      for (int i = 0; i < ffn.device_.compute[kind]; ++i) idle_.push_back(kind);
    }
  }

  // Reads of the device's I/O core, one after the other, queued now.
  void Read(size_t cluster, SimStage stage) {
    const SimModel& model = ffn_.model_;
    int64_t done_ns = now_ns_;
    for (const SimMissing& neuron : clusters_[cluster].missing) {
      uint64_t offset = neuron.offset;
      uint64_t bytes = model.gate_read_bytes;
      if (stage == SimStage::kRestRead) {
        offset += model.gate_read_bytes;
        bytes = neuron.goes_on ? model.bundle_bytes - model.gate_read_bytes : 0;
      }
      if (bytes == 0) continue;
      done_ns = ffn_.flash_.Serve({offset, bytes, 0, ffn_.device_.io_kind}, now_ns_);
      ++ffn_.counts_.reads;
      ffn_.counts_.bytes += bytes;
    }
    Push(done_ns, stage, cluster, 0);
  }

  void Ready(size_t cluster, SimStage stage) { ready_.emplace_back(cluster, stage); }

  // Runs until nothing is left. done(cluster, stage) says what follows.
  template <typename Done>
  int64_t Run(Done&& done) {
    Assign();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      end_ns_ = std::max(end_ns_, now_ns_);
      if (event.stage == SimStage::kGate || event.stage == SimStage::kRest) {
        idle_.push_back(event.core);
      }
      done(event.cluster, event.stage);
      Assign();
    }
    return end_ns_;
  }

 private:
  void Push(int64_t at_ns, SimStage stage, size_t cluster, size_t core) {
    events_.push({at_ns, next_order_++, stage, cluster, core});
  }

  // Idle cores take ready clusters; the fastest first.
  void Assign() {
    while (!idle_.empty() && !ready_.empty()) {
      const auto fastest = std::max_element(idle_.begin(), idle_.end(), [&](size_t a, size_t b) {
        return ffn_.device_.cores[a].macs_per_s < ffn_.device_.cores[b].macs_per_s;
      });
      const size_t core = *fastest;
      idle_.erase(fastest);
      const auto [cluster, stage] = ready_.front();
      ready_.pop_front();
      const Cluster& c = clusters_[cluster];
      const double macs =
          stage == SimStage::kGate ? ffn_.GateMacs(c.neurons) : ffn_.RestMacs(c.goes_on);
      const double bandwidth = ffn_.device_.memory_bytes_per_s / ffn_.device_.num_compute_cores();
      const double seconds =
          std::max(macs / ffn_.device_.cores[core].macs_per_s, macs * kSimWeightBytes / bandwidth);
      const int64_t ns = std::llround(seconds * 1e9);
      ffn_.counts_.busy_ns += ns;
      Push(now_ns_ + ns, stage, cluster, core);
    }
  }

  SimFfn& ffn_;
  std::vector<Cluster>& clusters_;
  int64_t now_ns_;
  int64_t end_ns_;
  int64_t next_order_ = 0;
  std::vector<size_t> idle_;  // kinds of the cores that do nothing
  std::deque<std::pair<size_t, SimStage>> ready_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

SimFfn::SimFfn(const SimDevice& device, const SimModel& model, DeviceModel& flash,
               SimPipeline pipeline, int64_t cluster_neurons)
    : device_(device),
      model_(model),
      flash_(flash),
      pipeline_(pipeline),
      cluster_neurons_(cluster_neurons) {}

double SimFfn::GateMacs(int64_t neurons) const {
  // Of a neuron that is a whole expert, gate is a third as well.
  const double gate = model_.neurons == 1 ? static_cast<double>(model_.matrices) / 3 : 1;
  return gate * static_cast<double>(neurons * model_.hidden_size);
}

double SimFfn::RestMacs(int64_t neurons) const {
  return static_cast<double>(neurons * model_.matrices * model_.hidden_size) - GateMacs(neurons);
}

std::vector<SimFfn::Cluster> SimFfn::ClustersOf(const SimFfnWork& work) const {
  std::vector<Cluster> clusters;
  for (int64_t begin = 0; begin < work.resident; begin += cluster_neurons_) {
    const int64_t end = std::min(work.resident, begin + cluster_neurons_);
    // Those that go on are spread evenly.
    const int64_t goes_on =
        end * work.resident_goes_on / work.resident - begin * work.resident_goes_on / work.resident;
    clusters.push_back({end - begin, goes_on, {}});
  }
  const std::span<const SimMissing> missing(work.missing);
  for (size_t begin = 0; begin < missing.size(); begin += static_cast<size_t>(cluster_neurons_)) {
    const auto part = missing.subspan(
        begin, std::min(missing.size() - begin, static_cast<size_t>(cluster_neurons_)));
    const auto goes_on = std::count_if(part.begin(), part.end(),
                                       [](const SimMissing& neuron) { return neuron.goes_on; });
    clusters.push_back({static_cast<int64_t>(part.size()), goes_on, part});
  }
  return clusters;
}

// Clusters without missing neurons are, or have become, resident.
int64_t SimFfn::RunClusters(std::vector<Cluster>& clusters, int64_t start_ns) {
  Timeline all(*this, clusters, start_ns);
  for (size_t c = 0; c < clusters.size(); ++c) {
    clusters[c].missing.empty() ? all.Ready(c, SimStage::kGate) : all.Read(c, SimStage::kGateRead);
  }
  return all.Run([&](size_t c, SimStage stage) {
    if (stage == SimStage::kGateRead) all.Ready(c, SimStage::kGate);
    if (stage == SimStage::kRestRead) all.Ready(c, SimStage::kRest);
    if (stage != SimStage::kGate || clusters[c].goes_on == 0) return;
    clusters[c].missing.empty() ? all.Ready(c, SimStage::kRest) : all.Read(c, SimStage::kRestRead);
  });
}

int64_t SimFfn::RunMatrices(std::vector<Cluster>& clusters, int64_t start_ns) {
  Timeline gates(*this, clusters, start_ns);
  for (size_t c = 0; c < clusters.size(); ++c) {
    clusters[c].missing.empty() ? gates.Ready(c, SimStage::kGate)
                                : gates.Read(c, SimStage::kGateRead);
  }
  const int64_t middle_ns = gates.Run([&](size_t c, SimStage stage) {
    if (stage == SimStage::kGateRead) gates.Ready(c, SimStage::kGate);
  });
  Timeline rest(*this, clusters, middle_ns);
  for (size_t c = 0; c < clusters.size(); ++c) {
    if (clusters[c].goes_on == 0) continue;
    clusters[c].missing.empty() ? rest.Ready(c, SimStage::kRest)
                                : rest.Read(c, SimStage::kRestRead);
  }
  return rest.Run([&](size_t c, SimStage stage) {
    if (stage == SimStage::kRestRead) rest.Ready(c, SimStage::kRest);
  });
}

// Returns when all of the bundles are there, both halves.
int64_t SimFfn::ReadAll(std::span<const SimMissing> missing, int64_t start_ns) {
  const bool in_parallel = pipeline_ == SimPipeline::kLlmFlash;
  const int cores = device_.num_compute_cores();
  const auto first = std::find_if(device_.compute.begin(), device_.compute.end(),
                                  [](int count) { return count > 0; });
  const auto compute_kind = static_cast<int>(first - device_.compute.begin());
  int64_t done_ns = start_ns;
  const auto read = [&](uint64_t offset, uint64_t bytes, int queue, int kind) {
    if (bytes == 0) return;
    done_ns = flash_.Serve({offset, bytes, queue, kind}, start_ns);
    ++counts_.reads;
    counts_.bytes += bytes;
  };
  const uint64_t gate = model_.gate_read_bytes;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (in_parallel) {
      read(missing[i].offset, model_.bundle_bytes, static_cast<int>(i) % cores, compute_kind);
    } else {
      read(missing[i].offset, gate, 0, device_.io_kind);
      read(missing[i].offset + gate, model_.bundle_bytes - gate, 0, device_.io_kind);
    }
  }
  return done_ns;
}

int64_t SimFfn::Run(const SimFfnWork& work, int64_t start_ns) {
  std::vector<Cluster> clusters = ClustersOf(work);
  if (pipeline_ == SimPipeline::kMatrix) return RunMatrices(clusters, start_ns);
  if (pipeline_ == SimPipeline::kCluster) return RunClusters(clusters, start_ns);
  const int64_t read_ns = ReadAll(work.missing, start_ns);
  for (Cluster& cluster : clusters) cluster.missing = {};
  return RunClusters(clusters, read_ns);
}

}  // namespace hearth
