#include "planner/placement/place_matrices.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rounding.h"
#include "engine/load/choose_matrices.h"
#include "engine/load/placed_layers.h"
#include "engine/load/placed_matrices.h"
#include "engine/load/tensor_roles.h"
#include "planner/placement/placement.h"

namespace hearth {
namespace {

uint64_t StoredBytes(std::span<const ResidentTensor* const> tensors) {
  uint64_t bytes = 0;
  for (const ResidentTensor* tensor : tensors) {
    if (tensor != nullptr) bytes += tensor->stored_expert_bytes();
  }
  return bytes;
}

// By layer and expert, how often a token chooses it; empty of dense layers.
std::vector<std::vector<double>> RatesOf(const ModelSpec& spec, const AccessRecord* record) {
  std::vector<std::vector<double>> rates;
  for (const LayerSpec& layer : spec.layers) {
    const FfnSpec& ffn = layer.ffn;
    const double equal = ffn.num_experts == 0 ? 0
                                              : static_cast<double>(ffn.num_experts_per_token) /
                                                    static_cast<double>(ffn.num_experts);
    rates.emplace_back(static_cast<size_t>(ffn.num_experts), record == nullptr ? equal : 0);
  }
  if (record == nullptr) return rates;
  const AccessSequence& lists = record->lists;
  for (const int32_t key : lists.keys()) {
    rates[static_cast<size_t>(key / lists.num_experts)]
         [static_cast<size_t>(key % lists.num_experts)] += 1 / static_cast<double>(record->tokens);
  }
  return rates;
}

std::vector<int32_t> HottestFirst(const std::vector<double>& rates) {
  std::vector<int32_t> experts(rates.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::stable_sort(experts.begin(), experts.end(), [&](int32_t a, int32_t b) {
    return rates[static_cast<size_t>(a)] > rates[static_cast<size_t>(b)];
  });
  return experts;
}

}  // namespace

double DenseSeconds(const LoadPlan& plan, const MatrixPlacement& placement,
                    const PlacementMachine& machine) {
  const TensorRoles roles(plan);
  uint64_t bytes = 0;
  double syncs = placement.output ? 1 : 0;
  for (size_t l = 0; l < placement.layers.size(); ++l) {
    if (placement.layers[l].predictor) {
      bytes += StoredBytes(roles.Predictor(l));
      ++syncs;
    }
    if (!placement.layers[l].attention) continue;
    const auto tensors = roles.Attention(l);
    bytes += StoredBytes(tensors);
    if (IsWhole(plan.spec, placement, l)) {
      // The states stay there from one such layer to the next.
      syncs += l > 0 && IsWhole(plan.spec, placement, l - 1) ? 0 : 1;
      continue;
    }
    // The states are sent once where the device attends, and where not also what W_o multiplies.
    syncs += placement.kv_tokens > 0 ? 1 : 2;
  }
  if (placement.output) bytes += StoredBytes(std::array{roles.Output()});
  return static_cast<double>(bytes) / machine.device_bytes_per_s +
         syncs * SyncSeconds(plan.spec.hidden_size, machine);
}

namespace {

class MatrixPlacer {
 public:
  MatrixPlacer(const LoadPlan& plan, const AccessRecord* record, const PlacementMachine& machine,
               const DevicePasses& passes)
      : plan_(plan),
        roles_(plan),
        machine_(machine),
        passes_(passes),
        rates_(RatesOf(plan.spec, record)) {}

  MatrixShare Place() {
    MatrixPlacement placement = ChooseEveryTokens();
    PlaceExperts(placement);
    if (!placement.any()) {
      throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"},
                  "no expert pays for what sending a layer's states takes");
    }
    return ShareOf(placement);
  }

 private:
  MatrixPlacement ChooseEveryTokens() const {
    constexpr uint64_t kAnyBuffer = std::numeric_limits<uint64_t>::max();
    return ChooseMatrices(plan_, passes_, {machine_.device_bytes, kAnyBuffer},
                          {.counts = {.leaves_experts = true}});
  }

  double SecondsToSync() const { return SyncSeconds(plan_.spec.hidden_size, machine_); }

  uint64_t ExpertBytes(size_t layer) const {
    const auto tensors = roles_.Ffn(layer);
    return StoredBytes(tensors);
  }

  // What is left beside `placement` and scratch for any expert.
  uint64_t BytesForExperts(const MatrixPlacement& placement) const {
    MatrixPlacement all = placement;
    for (size_t l = 0; l < rates_.size(); ++l) {
      if (!rates_[l].empty()) all.layers[l].experts = {0};
    }
    const uint64_t used = PlacedMatrices(plan_, all, passes_).scratch_bytes() +
                          PlacedMatrices(plan_, placement, passes_).lasting_bytes();
    return machine_.device_bytes - std::min(machine_.device_bytes, used);
  }

  // An expert is a batch of P1's program, as large as the largest of any layer.
  void PlaceExperts(MatrixPlacement& placement) const {
    std::vector<size_t> layers;
    PlacementProblem problem = {.ffns = {},
                                .device_bytes = BytesForExperts(placement),
                                .host_bytes = {},
                                .device_bytes_per_s = machine_.device_bytes_per_s,
                                .host_bytes_per_s = machine_.host_bytes_per_s};
    double chosen = 0, all = 0;
    for (size_t l = 0; l < rates_.size(); ++l) {
      if (rates_[l].empty()) continue;
      PlacementFfn ffn = {.layer = std::ssize(layers),
                          .neurons = kPlacementBatch * std::ssize(rates_[l])};
      for (const int32_t expert : HottestFirst(rates_[l])) {
        ffn.impacts.push_back(kPlacementBatch * rates_[l][static_cast<size_t>(expert)]);
        chosen += rates_[l][static_cast<size_t>(expert)];
      }
      all += static_cast<double>(rates_[l].size());
      problem.ffns.push_back(std::move(ffn));
      problem.neuron_bytes = std::max(
          problem.neuron_bytes, DivideUp(ExpertBytes(l), static_cast<uint64_t>(kPlacementBatch)));
      layers.push_back(l);
    }
    if (layers.empty() || chosen == 0) return;
    // A token reads only the experts that it chooses: they save so much less of what a layer costs.
    problem.sync_seconds = SecondsToSync() * all / chosen;
    const Placement solved = SolvePlacement(problem);
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::vector<int32_t> hottest = HottestFirst(rates_[layers[i]]);
      std::vector<int32_t>& experts = placement.layers[layers[i]].experts;
      experts.assign(hottest.begin(), hottest.begin() + solved.device_neurons[i] / kPlacementBatch);
      std::sort(experts.begin(), experts.end());
    }
  }

  double Seconds(uint64_t bytes) const {
    return static_cast<double>(bytes) / machine_.device_bytes_per_s;
  }

  MatrixShare ShareOf(const MatrixPlacement& placement) const {
    const PlacedMatrices placed(plan_, placement, passes_);
    MatrixShare share;
    share.planned = {.memory_bytes = machine_.device_bytes,
                     .ledger = placed.Ledger(),
                     .layer_neurons = {},
                     .matrices = placement};
    share.dense_seconds = DenseSeconds(plan_, placement, machine_);
    for (size_t l = 0; l < rates_.size(); ++l) {
      const PlacedLayer& layer = placement.layers[l];
      const auto shared = roles_.Shared(l);
      double seconds = layer.shared ? Seconds(StoredBytes(shared)) : 0;
      double there = rates_[l].empty() ? static_cast<double>(layer.experts.size()) : 0, all = 1;
      if (!rates_[l].empty()) {
        all = std::max(std::accumulate(rates_[l].begin(), rates_[l].end(), 0.0), 1e-9);
        for (const int32_t expert : layer.experts) there += rates_[l][static_cast<size_t>(expert)];
      }
      seconds += there * Seconds(ExpertBytes(l));
      const bool syncs = seconds > 0 && !IsWhole(plan_.spec, placement, l);
      share.ffn_seconds.push_back(syncs ? seconds + SecondsToSync() : seconds);
      share.experts_here.push_back(std::max(0.0, 1 - there / all));
    }
    return share;
  }

  const LoadPlan& plan_;
  const TensorRoles roles_;
  const PlacementMachine& machine_;
  const DevicePasses passes_;
  const std::vector<std::vector<double>> rates_;
};

}  // namespace

MatrixShare PlaceMatrices(const GgufFile& file, const AccessRecord* record,
                          const PlacementMachine& machine, const EngineOptions& engine) {
  const LoadPlan plan = PlanLoad(file);
  if (plan.is_packed) {
    throw Error(ErrorCode::kUnsupported, file.path(), "of a packed file neurons are placed");
  }
  return MatrixPlacer(plan, record, machine, PassesFor(engine, file, plan)).Place();
}

}  // namespace hearth
