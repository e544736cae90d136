#include "planner/placement/device_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/load/device_part.h"
#include "engine/load/engine_plan.h"
#include "plan/ledger.h"
#include "planner/placement/place_matrices.h"

namespace hearth {
namespace {

// Whether the rest of a model is in memory as a whole.
bool RestFits(const GgufFile& file, EngineOptions engine, const OnDevice& on_device) {
  engine.may_stream = false;
  engine.may_spill_kv = false;
  const EnginePlan plan = PlanEngine(file, engine, on_device);
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

// Neurons in what matrices leave of the device's memory.
class NeuronPlacer {
 public:
  NeuronPlacer(const GgufFile& file, const ModelProfile* profile, const PlacementMachine& machine,
               const EngineOptions& engine)
      : file_(file),
        machine_(machine),
        engine_(engine),
        load_(PlanLoad(file)),
        passes_(PassesFor(engine, file, load_)),
        neuron_bytes_(DeviceNeuronBytes(file, load_)),
        model_(ModelOf(file, profile, neuron_bytes_)) {
    const std::vector<int64_t> all(static_cast<size_t>(model_.num_layers), model_.neurons);
    scratch_ = DeviceLedger(file, load_, all, engine.batch_tokens).at("scratch");
    if (scratch_ < machine.device_bytes) return;
    throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"}, "scratch for the device's kernels",
                "more than " + FormatSize(scratch_), FormatSize(machine.device_bytes));
  }

  // What is no neuron: every token reads all of it. No layers where nothing fits, or where the host
  // reads it sooner.
  MatrixPlacement ChooseDense() const {
    constexpr uint64_t kAnyBuffer = std::numeric_limits<uint64_t>::max();
    MatrixPlacement dense =
        ChooseMatrices(load_, passes_, {machine_.device_bytes - scratch_, kAnyBuffer}, {});
    if (!dense.any()) return {};
    const uint64_t bytes =
        accel::DeviceMatrices::MatrixBytes(PlacedMatrices(load_, dense, passes_).shape);
    const double on_host = static_cast<double>(bytes) / machine_.host_bytes_per_s;
    return DenseSeconds(load_, dense, machine_) < on_host ? dense : MatrixPlacement();
  }

  // `dense` has no layers where nothing but neurons lies there. No neuron may go there. What is
  // streamed has its predictors on the host, which asks them ahead of reads.
  DevicePlacement Place(MatrixPlacement dense) const {
    DevicePlacement placement = PlaceBeside(dense);
    if (!placement.is_streamed || !dense.has_predictors()) return placement;
    for (PlacedLayer& layer : dense.layers) layer.predictor = false;
    return PlaceBeside(dense);
  }

 private:
  static PlacementModel ModelOf(const GgufFile& file, const ModelProfile* profile,
                                uint64_t neuron_bytes) {
    PlacementModel model = PlacementModelOf(file, profile);
    model.neuron_bytes = neuron_bytes;
    return ByLayer(std::move(model));
  }

  DevicePlacement PlaceBeside(const MatrixPlacement& dense) const {
    std::map<std::string, uint64_t> ledger;
    if (dense.any()) ledger = PlacedMatrices(load_, dense, passes_).Ledger();
    PlacementMachine for_neurons = machine_;
    for_neurons.device_bytes -= scratch_;
    for_neurons.device_bytes -= std::min(for_neurons.device_bytes, LedgerSum(ledger));
    for_neurons.host_bytes.reset();  // what it has no room for is read from flash
    DevicePlacement placement;
    placement.placed = PlaceModel(model_, for_neurons, DensePlace::kHost);
    placement.is_streamed = !RestFits(file_, engine_,
                                      {.neurons = placement.placed.placement.device_neurons,
                                       .matrices = dense.any() ? &dense : nullptr});
    if (placement.is_streamed) {
      placement.placed =
          PlaceModel(model_, for_neurons, DensePlace::kHost, PlacementForm::kUniform);
    }
    const std::vector<int64_t>& neurons = placement.placed.placement.device_neurons;
    for (const auto& [name, bytes] : DeviceLedger(file_, load_, neurons, engine_.batch_tokens)) {
      ledger[name] += bytes;
    }
    placement.share = {
        .planned = {.memory_bytes = machine_.device_bytes,
                    .ledger = std::move(ledger),
                    .layer_neurons = neurons,
                    .matrices = dense},
        .neuron_bytes = neuron_bytes_,
        .experts_per_token = std::max<int64_t>(MainFfn(load_.spec).num_experts_per_token, 1),
        .gate_share = GateShare(MainFfn(load_.spec)),
        .bytes_per_s = machine_.device_bytes_per_s,
        .sync_seconds = placement.placed.problem.sync_seconds,
        .dense_seconds = DenseSeconds(load_, dense, machine_)};
    return placement;
  }

  const GgufFile& file_;
  const PlacementMachine& machine_;
  const EngineOptions& engine_;
  const LoadPlan load_;
  const DevicePasses passes_;
  const uint64_t neuron_bytes_;
  const PlacementModel model_;
  uint64_t scratch_ = 0;
};

bool HasNeurons(const DevicePlacement& placement) {
  const std::vector<int64_t>& neurons = placement.placed.placement.device_neurons;
  return std::any_of(neurons.begin(), neurons.end(), [](int64_t n) { return n > 0; });
}

}  // namespace

DevicePlacement PlaceOnDevice(const GgufFile& file, const ModelProfile* profile,
                              const PlacementMachine& machine, const EngineOptions& engine) {
  const NeuronPlacer placer(file, profile, machine, engine);
  const MatrixPlacement dense = placer.ChooseDense();
  if (dense.any()) {
    DevicePlacement placement = placer.Place(dense);
    if (HasNeurons(placement)) return placement;
  }
  DevicePlacement placement = placer.Place({});
  if (HasNeurons(placement)) return placement;
  RefusePlacement(placement.placed, machine.device_bytes);
}

}  // namespace hearth
