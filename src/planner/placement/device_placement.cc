#include "planner/placement/device_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/load/device_part.h"
#include "engine/load/engine_plan.h"

namespace hearth {
namespace {

// Whether the rest of a model is in memory as a whole.
bool RestFits(const GgufFile& file, EngineOptions engine, const std::vector<int64_t>& neurons) {
  engine.may_stream = false;
  engine.may_spill_kv = false;
  const EnginePlan plan = PlanEngine(file, engine, {.neurons = neurons});
  return plan.needed_bytes() <= plan.limit_bytes;
}

[[noreturn]] void RefusePlacement(const PlacedModel& placed, uint64_t device_bytes) {
  const std::optional<int64_t> least = LeastNeurons(placed.problem);
  const std::string why =
      !least ? "the device computes no neuron sooner than the host"
             : fmt::format(
                   "a layer pays for its synchronization only from {} neurons on, and {} of "
                   "the device hold fewer of any",
                   *least, FormatSize(device_bytes));
  throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"},
              "communication (P1 constraint 4): " + why);
}

// Of a neuron, what its gate is of all its rows.
double GateShare(const FfnSpec& ffn) { return BundleKindOf(ffn).is_gated ? 1.0 / 3 : 1.0 / 2; }

}  // namespace

DevicePlacement PlaceOnDevice(const GgufFile& file, const ModelProfile* profile,
                              const PlacementMachine& machine, const EngineOptions& engine) {
  const LoadPlan load = PlanLoad(file);
  PlacementModel model = PlacementModelOf(file, profile);
  model.neuron_bytes = DeviceNeuronBytes(file, load);
  const auto num_layers = static_cast<size_t>(model.num_layers);
  const uint64_t scratch =
      DeviceLedger(file, load, std::vector<int64_t>(num_layers, model.neurons), engine.batch_tokens)
          .at("scratch");
  if (scratch >= machine.device_bytes) {
    throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"}, "scratch for the device's kernels",
                "more than " + FormatSize(scratch), FormatSize(machine.device_bytes));
  }
  PlacementMachine for_neurons = machine;
  for_neurons.device_bytes -= scratch;
  for_neurons.host_bytes.reset();  // what it has no room for is read from flash
  DevicePlacement placement;
  placement.placed = PlaceModel(model, for_neurons, DensePlace::kHost);
  placement.is_streamed = !RestFits(file, engine, placement.placed.placement.device_neurons);
  if (placement.is_streamed) {
    placement.placed = PlaceModel(model, for_neurons, DensePlace::kHost, PlacementForm::kUniform);
  }
  const std::vector<int64_t>& neurons = placement.placed.placement.device_neurons;
  if (std::all_of(neurons.begin(), neurons.end(), [](int64_t n) { return n == 0; })) {
    RefusePlacement(placement.placed, for_neurons.device_bytes);
  }
  placement.share = {.planned = {.memory_bytes = machine.device_bytes,
                                 .ledger = DeviceLedger(file, load, neurons, engine.batch_tokens),
                                 .layer_neurons = neurons},
                     .neuron_bytes = model.neuron_bytes,
                     .gate_share = GateShare(MainFfn(load.spec)),
                     .bytes_per_s = machine.device_bytes_per_s,
                     .sync_seconds = placement.placed.problem.sync_seconds};
  return placement;
}

}  // namespace hearth
