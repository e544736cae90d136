#include "planner/emulator/emulated_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "planner/emulator/hybrid_clock.h"
#include "planner/placement/placement.h"
#include "planner/placement/placement_model.h"

namespace hearth {
namespace {

constexpr int64_t kBlockWeights = 32;
constexpr uint64_t kHalfBytes = 2;  // keys and values
// How many layers may have attention on the device: these parts of all that fit.
constexpr int kDenseSteps = 4;

uint64_t DenseBytes(const EmulatedModel& model, EmulatedSystem system) {  // of a layer
  return model.attention_bytes + (ListsNeurons(system) ? model.predictor_bytes : 0);
}

uint64_t LessOf(uint64_t bytes, uint64_t taken) { return bytes > taken ? bytes - taken : 0; }

// The host's memory for weights of layers.
uint64_t HostRoom(const EmulatedModel& model, const EmulatedBudgets& budgets) {
  const uint64_t kv = model.kv_bytes * static_cast<uint64_t>(model.num_layers * budgets.context);
  return LessOf(budgets.host_bytes, model.embedding_bytes + kv);
}

[[noreturn]] void RefuseDense(const EmulatedModel& model, uint64_t needed, uint64_t room) {
  throw Error(
      ErrorCode::kOutOfBudget, Field{"memory"},
      fmt::format("attention, predictors and output of {} take {} on the host, which has {} "
                  "for them (P1 constraint 6)",
                  model.name, FormatSize(needed), FormatSize(room)));
}

// Whole layers, then as many of the others as the host holds.
EmulatedPlacement PlaceLayers(const EmulatedModel& model, const EmulatedBudgets& budgets,
                              EmulatedSystem system) {
  const uint64_t layer = DenseBytes(model, system) + model.ffn_bytes();
  EmulatedPlacement placed = {.system = system};
  placed.dense_layers =
      std::min(static_cast<int64_t>(budgets.device_bytes / layer), model.num_layers);
  const int64_t here = model.num_layers - placed.dense_layers;
  placed.output_on_device =
      here == 0 &&
      budgets.device_bytes - layer * static_cast<uint64_t>(model.num_layers) >= model.output_bytes;
  uint64_t room =
      LessOf(HostRoom(model, budgets), placed.output_on_device ? 0 : model.output_bytes);
  const uint64_t needed = layer * static_cast<uint64_t>(here);
  if (!ListsNeurons(system)) placed.flash_bytes = LessOf(needed, room);
  const uint64_t dense = DenseBytes(model, system) * static_cast<uint64_t>(here);
  if (ListsNeurons(system) && dense > room) RefuseDense(model, dense, room);
  room -= std::min(room, dense);
  const auto each =
      here > 0 ? static_cast<int64_t>(room / static_cast<uint64_t>(here) / model.neuron_bytes) : 0;
  for (int64_t l = 0; l < model.num_layers; ++l) {
    const bool is_there = placed.is_dense_there(l);
    placed.device_neurons.push_back(is_there ? model.neurons : 0);
    placed.host_neurons.push_back(is_there ? 0 : std::min(each, model.neurons));
  }
  return placed;
}

PlacementProblem EmulatedProblem(const EmulatedMachine& machine, const EmulatedModel& model,
                                 uint64_t device_bytes, const std::vector<double>& rates) {
  PlacementProblem problem;
  problem.neuron_bytes = model.neuron_bytes;
  problem.device_bytes = device_bytes;
  problem.device_bytes_per_s = machine.device_bytes_per_s;
  problem.host_bytes_per_s = machine.host_bytes_per_s;
  problem.sync_seconds = 2 * (machine.link_seconds + static_cast<double>(model.hidden) *
                                                         sizeof(float) / machine.link_bytes_per_s);
  const PlacementFfn ffn = BatchNeurons(0, rates);
  for (int64_t l = 0; l < model.num_layers; ++l) {
    problem.ffns.push_back(ffn);
    problem.ffns.back().layer = l;
  }
  return problem;
}

// With attention of so many layers on the device; nothing where that does not fit.
std::optional<EmulatedPlacement> PlaceNeurons(const EmulatedMachine& machine,
                                              const EmulatedModel& model,
                                              const EmulatedBudgets& budgets, EmulatedSystem system,
                                              const std::vector<double>& rates,
                                              int64_t dense_layers) {
  const uint64_t dense = DenseBytes(model, system);
  EmulatedPlacement placed = {.system = system, .dense_layers = dense_layers};
  uint64_t there = dense * static_cast<uint64_t>(dense_layers);
  if (there > budgets.device_bytes) return std::nullopt;
  placed.output_on_device = dense_layers > 0 && there + model.output_bytes <= budgets.device_bytes;
  if (placed.output_on_device) there += model.output_bytes;
  const uint64_t here = dense * static_cast<uint64_t>(model.num_layers - dense_layers) +
                        (placed.output_on_device ? 0 : model.output_bytes);
  const uint64_t room = HostRoom(model, budgets);
  if (here > room) return std::nullopt;
  const uint64_t for_neurons = budgets.device_bytes - there;
  if (system == EmulatedSystem::kRandom) {
    const auto each = static_cast<int64_t>(for_neurons / static_cast<uint64_t>(model.num_layers) /
                                           model.neuron_bytes);
    placed.device_neurons.assign(static_cast<size_t>(model.num_layers),
                                 std::min(each, model.neurons));
  } else {
    placed.device_neurons =
        SolvePlacement(EmulatedProblem(machine, model, for_neurons, rates)).device_neurons;
  }
  const int64_t on_device =
      std::accumulate(placed.device_neurons.begin(), placed.device_neurons.end(), int64_t{0});
  const auto fitting = static_cast<int64_t>((room - here) / model.neuron_bytes);
  const int64_t others = model.num_layers * model.neurons - on_device;
  for (const int64_t neurons : placed.device_neurons) {
    const int64_t left = model.neurons - neurons;
    placed.host_neurons.push_back(fitting >= others ? left
                                                    : std::min(left, fitting / model.num_layers));
  }
  return placed;
}

// What a token lists on average.
std::vector<EmulatedLists> ExpectedLists(const EmulatedModel& model,
                                         const EmulatedPlacement& placed,
                                         const std::vector<double>& rates) {
  std::vector<double> sums = {0};  // of the first neurons
  for (const double rate : rates) sums.push_back(sums.back() + rate);
  std::vector<EmulatedLists> lists;
  for (size_t l = 0; l < placed.device_neurons.size(); ++l) {
    const auto device = static_cast<size_t>(placed.device_neurons[l]);
    const auto host = device + static_cast<size_t>(placed.host_neurons[l]);
    EmulatedLists layer;
    if (placed.system == EmulatedSystem::kRandom) {
      const double each = sums.back() / static_cast<double>(model.neurons);
      layer = {each * static_cast<double>(device), each * static_cast<double>(host - device),
               each * static_cast<double>(model.neurons) - each * static_cast<double>(host), 0, 0};
    } else {
      layer = {sums[device], sums[host] - sums[device], sums.back() - sums[host], 0, 0};
    }
    layer.device_all = layer.device;
    layer.host_all = layer.host + layer.flash;
    lists.push_back(layer);
  }
  return lists;
}

}  // namespace

EmulatedModel EmulatedModelOf(const ModelShape& shape, DType quant) {
  if (shape.num_experts > 0) {
    throw Error(ErrorCode::kUnsupported, shape.name, "a mixture of experts is not emulated yet");
  }
  const PlacementModel sizes = PlacementModelOf(shape, quant, {});
  EmulatedModel model;
  model.name = shape.name;
  model.num_layers = shape.num_layers;
  model.hidden = shape.hidden_size;
  model.vocab = shape.vocab_size;
  model.neurons = shape.intermediate_size;
  model.neuron_bytes = sizes.neuron_bytes;
  model.embedding_bytes = sizes.embedding_bytes;
  const DenseSizes dense = DenseSizesOf(shape, quant);
  model.output_bytes = dense.output_bytes;
  model.attention_bytes = dense.attention_bytes;
  model.predictor_bytes = dense.predictor_bytes / static_cast<uint64_t>(shape.num_layers);
  model.kv_bytes = 2 * kHalfBytes * static_cast<uint64_t>(shape.num_kv_heads * shape.head_dim);
  model.bytes_per_weight = static_cast<double>(RowBytes(quant, kBlockWeights)) / kBlockWeights;
  return model;
}

const char* EmulatedSystemName(EmulatedSystem system) {
  switch (system) {
    case EmulatedSystem::kLayers:
      return "layers";
    case EmulatedSystem::kSparseLayers:
      return "sparse";
    case EmulatedSystem::kRandom:
      return "random";
    case EmulatedSystem::kPlaced:
      return "placed";
  }
  return "?";
}

EmulatedPlacement PlaceEmulated(const EmulatedMachine& machine, const EmulatedModel& model,
                                const EmulatedBudgets& budgets, EmulatedSystem system,
                                const std::vector<double>& rates) {
  if (system == EmulatedSystem::kLayers || system == EmulatedSystem::kSparseLayers) {
    return PlaceLayers(model, budgets, system);
  }
  const auto most = std::min(static_cast<int64_t>(budgets.device_bytes / DenseBytes(model, system)),
                             model.num_layers);
  std::optional<EmulatedPlacement> best;
  double best_seconds = 0;
  for (int step = 0; step <= kDenseSteps; ++step) {
    const auto placed =
        PlaceNeurons(machine, model, budgets, system, rates, most * step / kDenseSteps);
    if (!placed) continue;
    const double seconds = HybridClock(machine, model, *placed)
                               .PassSeconds(1, budgets.context,
                                            ExpectedLists(model, *placed, rates), nullptr, nullptr);
    if (best && seconds >= best_seconds) continue;
    best = placed;
    best_seconds = seconds;
  }
  if (best) return *best;
  const uint64_t here = DenseBytes(model, system) * static_cast<uint64_t>(model.num_layers - most) +
                        model.output_bytes;
  RefuseDense(model, here, HostRoom(model, budgets));
}

}  // namespace hearth
