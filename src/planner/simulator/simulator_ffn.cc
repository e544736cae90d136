#include "planner/simulator/simulator_ffn.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "base/rounding.h"
#include "plan/cluster_sizes.h"

namespace hearth {
namespace {

// The paper's neurons of a cluster. Free: it prints none.
constexpr int64_t kPaperCluster = 32;

// A mapped file is computed matrix by matrix, and so is what LLM in a Flash holds: its neurons lie
// together in memory for that (Alizadeh et al. 2023, 3.3).
double WeightCost(const SimDevice& device, const SimStrategy& strategy) {
  const bool is_dense =
      strategy.pipeline == SimPipeline::kMmap ||
      (strategy.pipeline == SimPipeline::kLlmFlash && strategy.system == SimSystem::kPowerInfer2);
  return is_dense ? 1 : device.gathered_cost;
}

}  // namespace

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

  bool has_gates() const { return missing.empty() || missing.front().has_gate; }
};

// What a core does with a cluster, or a read brings of it. kWhole: all that there is.
enum class SimStage : uint8_t { kGateRead, kGate, kRestRead, kRest, kWholeRead, kWhole };

struct SimFfn::Event {
  int64_t at_ns = 0;
  int64_t order = 0;  // of events at the same time
  SimStage stage = SimStage::kGate;
  std::vector<size_t> clusters = {};
  size_t core = 0;  // of what cores do

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

  // Reads one after the other, queued now.
  void Read(size_t cluster, SimStage stage) {
    const SimModel& model = ffn_.model_;
    int64_t done_ns = now_ns_;
    for (const SimMissing& neuron : clusters_[cluster].missing) {
      uint64_t offset = neuron.offset;
      uint64_t bytes = stage == SimStage::kWholeRead ? model.bundle_bytes : model.gate_read_bytes;
      if (stage == SimStage::kRestRead) {
        offset += model.gate_read_bytes;
        bytes = neuron.goes_on ? model.bundle_bytes - model.gate_read_bytes : 0;
      }
      const uint64_t most = ffn_.strategy_.piece_bytes > 0 ? ffn_.strategy_.piece_bytes : bytes;
      for (uint64_t at = 0; at < bytes; at += most) {
        const uint64_t piece = std::min(most, bytes - at);
        done_ns = std::max(done_ns, ffn_.Read(offset + at, piece, now_ns_));
      }
    }
    Push({.at_ns = done_ns, .stage = stage, .clusters = {cluster}});
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
      const bool is_read = event.stage == SimStage::kGateRead ||
                           event.stage == SimStage::kRestRead ||
                           event.stage == SimStage::kWholeRead;
      if (!is_read) idle_.push_back(event.core);
      for (const size_t cluster : event.clusters) done(cluster, event.stage);
      Assign();
    }
    return end_ns_;
  }

 private:
  void Push(Event event) {
    event.order = next_order_++;
    events_.push(std::move(event));
  }

  // Ready clusters that a core takes together: of Hearth as many single neurons as its threads do.
  std::vector<size_t> TakeReady(SimStage stage) {
    const int64_t most =
        ffn_.is_hearth() ? ffn_.MostOfCluster(static_cast<int64_t>(ready_.size())) : 1;
    std::vector<size_t> taken = {ready_.front().first};
    ready_.pop_front();
    const auto is_single = [&](size_t cluster) { return clusters_[cluster].neurons == 1; };
    while (std::ssize(taken) < most && !ready_.empty() && ready_.front().second == stage &&
           is_single(taken.front()) && is_single(ready_.front().first)) {
      taken.push_back(ready_.front().first);
      ready_.pop_front();
    }
    return taken;
  }

  double MacsOf(const std::vector<size_t>& taken, SimStage stage) const {
    double macs = 0;
    for (const size_t cluster : taken) {
      const Cluster& c = clusters_[cluster];
      if (stage != SimStage::kRest) macs += ffn_.GateMacs(c.neurons);
      if (stage != SimStage::kGate) macs += ffn_.RestMacs(c.goes_on);
    }
    return macs;
  }

  // Idle cores take ready clusters; the fastest first.
  void Assign() {
    while (!idle_.empty() && !ready_.empty()) {
      const auto fastest = std::max_element(idle_.begin(), idle_.end(), [&](size_t a, size_t b) {
        return ffn_.device_.cores[a].macs_per_s < ffn_.device_.cores[b].macs_per_s;
      });
      const size_t core = *fastest;
      idle_.erase(fastest);
      const SimStage stage = ready_.front().second;
      std::vector<size_t> taken = TakeReady(stage);
      const double macs = MacsOf(taken, stage);
      const double bandwidth = ffn_.device_.memory_bytes_per_s / ffn_.device_.num_compute_cores();
      const double seconds = std::max(ffn_.cost_ * macs / ffn_.device_.cores[core].macs_per_s,
                                      macs * kSimWeightBytes / bandwidth);
      const int64_t ns = std::llround(seconds * 1e9);
      ffn_.counts_.busy_ns += ns;
      Push({.at_ns = now_ns_ + ns, .stage = stage, .clusters = std::move(taken), .core = core});
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
               const SimStrategy& strategy)
    : device_(device),
      model_(model),
      flash_(flash),
      strategy_(strategy),
      cost_(WeightCost(device, strategy)) {}

double SimFfn::GateMacs(int64_t neurons) const {
  // Of a neuron that is a whole expert, gate is a third as well.
  const double gate = model_.neurons == 1 ? static_cast<double>(model_.matrices) / 3 : 1;
  return gate * static_cast<double>(neurons * model_.hidden_size);
}

double SimFfn::RestMacs(int64_t neurons) const {
  return static_cast<double>(neurons * model_.matrices * model_.hidden_size) - GateMacs(neurons);
}

// Neurons that a core takes where so many are ready (plan/cluster_sizes.h).
int64_t SimFfn::MostOfCluster(int64_t left) const {
  if (strategy_.cluster_neurons > 0) return strategy_.cluster_neurons;
  if (!is_hearth()) return kPaperCluster;
  return ClusterSizes().Of(left, device_.num_compute_cores());
}

std::vector<SimFfn::Cluster> SimFfn::ClustersOf(const SimFfnWork& work) const {
  std::vector<Cluster> clusters;
  for (int64_t begin = 0, end = 0; begin < work.resident; begin = end) {
    end = std::min(work.resident, begin + MostOfCluster(work.resident - begin));
    // Those that go on are spread evenly.
    const int64_t goes_on =
        end * work.resident_goes_on / work.resident - begin * work.resident_goes_on / work.resident;
    clusters.push_back({end - begin, goes_on, {}});
  }
  const std::span<const SimMissing> missing(work.missing);
  const auto together = static_cast<size_t>(is_hearth() ? 1 : MostOfCluster(0));
  for (size_t begin = 0; begin < missing.size(); begin += together) {
    const auto part = missing.subspan(begin, std::min(missing.size() - begin, together));
    const auto goes_on = std::count_if(part.begin(), part.end(),
                                       [](const SimMissing& neuron) { return neuron.goes_on; });
    clusters.push_back({static_cast<int64_t>(part.size()), goes_on, part});
  }
  return clusters;
}

// Clusters without missing neurons are, or have become, resident.
int64_t SimFfn::RunClusters(std::vector<Cluster>& clusters, int64_t start_ns) {
  Timeline all(*this, clusters, start_ns);
  const bool in_two = strategy_.reads_gates_first();
  // The engine computes at once what is here as a whole, the paper stage by stage.
  const SimStage of_resident = is_hearth() ? SimStage::kWhole : SimStage::kGate;
  for (size_t c = 0; c < clusters.size(); ++c) {
    if (clusters[c].missing.empty()) {
      all.Ready(c, of_resident);
    } else if (clusters[c].has_gates()) {
      all.Ready(c, SimStage::kGate);
    } else {
      all.Read(c, in_two ? SimStage::kGateRead : SimStage::kWholeRead);
    }
  }
  return all.Run([&](size_t c, SimStage stage) {
    if (stage == SimStage::kWholeRead) all.Ready(c, SimStage::kWhole);
    if (stage == SimStage::kGateRead) all.Ready(c, SimStage::kGate);
    if (stage == SimStage::kRestRead) all.Ready(c, SimStage::kRest);
    if (stage != SimStage::kGate || clusters[c].goes_on == 0) return;
    clusters[c].missing.empty() ? all.Ready(c, SimStage::kRest) : all.Read(c, SimStage::kRestRead);
  });
}

int64_t SimFfn::RunMatrices(std::vector<Cluster>& clusters, int64_t start_ns) {
  Timeline gates(*this, clusters, start_ns);
  for (size_t c = 0; c < clusters.size(); ++c) {
    clusters[c].has_gates() ? gates.Ready(c, SimStage::kGate) : gates.Read(c, SimStage::kGateRead);
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

int SimFfn::FirstComputeKind() const {
  const auto first = std::find_if(device_.compute.begin(), device_.compute.end(),
                                  [](int count) { return count > 0; });
  return static_cast<int>(first - device_.compute.begin());
}

// By the one core that reads, or the threads of Hearth, which share a queue.
int64_t SimFfn::Read(uint64_t offset, uint64_t bytes, int64_t now_ns) {
  ++counts_.reads;
  counts_.bytes += bytes;
  if (!is_hearth()) return flash_.Serve({offset, bytes, 0, device_.io_kind}, now_ns);
  int64_t issued_ns = now_ns;
  if (std::ssize(in_flight_) == strategy_.queue_depth) {
    issued_ns = std::max(now_ns, in_flight_.top());
    in_flight_.pop();
  }
  const int64_t done_ns = flash_.Serve({offset, bytes, 0, FirstComputeKind()}, issued_ns);
  in_flight_.push(done_ns);
  return done_ns;
}

// Returns when all of the bundles are there. P2 reads two halves of each; its port of LLM in a
// Flash the whole, by all compute cores at once.
int64_t SimFfn::ReadAll(std::span<const SimMissing> missing, int64_t start_ns) {
  int64_t done_ns = start_ns;
  const uint64_t gate = model_.gate_read_bytes, all = model_.bundle_bytes;
  const int kind = FirstComputeKind(), cores = device_.num_compute_cores();
  for (size_t i = 0; i < missing.size(); ++i) {
    const uint64_t offset = missing[i].offset;
    if (is_hearth()) {
      done_ns = std::max(done_ns, Read(offset, all, start_ns));
    } else if (strategy_.pipeline == SimPipeline::kLlmFlash) {
      done_ns = flash_.Serve({offset, all, static_cast<int>(i) % cores, kind}, start_ns);
      ++counts_.reads;
      counts_.bytes += all;
    } else {
      done_ns = Read(offset, gate, start_ns);
      if (all > gate) done_ns = Read(offset + gate, all - gate, start_ns);
    }
  }
  return done_ns;
}

int64_t SimFfn::Run(const SimFfnWork& work, int64_t start_ns) {
  std::vector<Cluster> clusters = ClustersOf(work);
  if (strategy_.pipeline == SimPipeline::kMatrix) return RunMatrices(clusters, start_ns);
  if (strategy_.pipeline == SimPipeline::kCluster) return RunClusters(clusters, start_ns);
  const int64_t read_ns = ReadAll(work.missing, start_ns);
  for (Cluster& cluster : clusters) cluster.missing = {};
  return RunClusters(clusters, read_ns);
}

}  // namespace hearth
