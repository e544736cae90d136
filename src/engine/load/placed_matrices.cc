#include "engine/load/placed_matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "engine/load/placed_layers.h"
#include "engine/load/prompt_uploads.h"
#include "engine/load/tensor_roles.h"
#include "ops/repack.h"

namespace hearth {
namespace {

using accel::DeviceMatrices;

// Bytes of a file that are read and uploaded at a time.
constexpr uint64_t kFillBytes = uint64_t{4} << 20;

}  // namespace

void LeaveToDevice(LoadPlan& plan, const MatrixPlacement& placement) {
  const TensorRoles roles(plan);
  std::vector<const ResidentTensor*> left;
  // Where several matrices lie in one tensor of the file, each has its own entry in the plan.
  const auto leave = [&](auto tensors) {
    for (const ResidentTensor* tensor : tensors) {
      if (tensor != nullptr) left.push_back(tensor);
    }
  };
  for (size_t l = 0; l < placement.layers.size(); ++l) {
    const PlacedLayer& layer = placement.layers[l];
    if (layer.attention) leave(roles.Attention(l));
    if (layer.shared) leave(roles.Shared(l));
    if (layer.predictor) leave(roles.Predictor(l));
    if (layer.experts.empty()) continue;
    const int64_t all = std::max<int64_t>(plan.spec.layers[l].ffn.num_experts, 1);
    if (std::ssize(layer.experts) == all) {
      leave(roles.Ffn(l));
      continue;
    }
    std::vector<int32_t> held;
    std::vector<int32_t>& places = plan.weights->layers[l].expert_places;
    places.assign(static_cast<size_t>(all), -1);
    for (int32_t expert = 0; expert < all; ++expert) {
      if (layer.HasExpert(expert)) continue;
      places[static_cast<size_t>(expert)] = static_cast<int32_t>(held.size());
      held.push_back(expert);
    }
    const LayerWeights& w = roles.layer(l);
    for (ResidentTensor& tensor : plan.tensors) {
      const WeightView* const slot = tensor.decl.slot;
      if (slot != &w.ffn_gate && slot != &w.ffn_up && slot != &w.ffn_down) continue;
      tensor.held_experts = held;
      tensor.decl.experts = std::ssize(held);
      tensor.bytes = tensor.View(nullptr).expert_bytes() * held.size();
    }
  }
  if (placement.output) leave(std::array{roles.Output()});
  std::vector<const WeightView*> slots;
  for (const ResidentTensor* tensor : left) {
    *tensor->decl.slot = {};
    slots.push_back(tensor->decl.slot);
  }
  RemoveTensors(plan, [&](const ResidentTensor& tensor) {
    return std::find(slots.begin(), slots.end(), tensor.decl.slot) != slots.end();
  });
}

bool HasFfns(const MatrixPlacement& placement) {
  const auto has = [](const PlacedLayer& layer) { return layer.shared || !layer.experts.empty(); };
  return placement.upload_tokens > 0 ||
         std::any_of(placement.layers.begin(), placement.layers.end(), has);
}

void CheckAdapters(const MatrixPlacement& placement, const ModelSpec& spec) {
  for (size_t l = 0; l < placement.layers.size(); ++l) {
    const PlacedLayer& layer = placement.layers[l];
    const FfnSpec& ffn = spec.layers[l].ffn;
    const bool is_mixture = ffn.num_experts > 0;
    const bool comes_there =
        placement.upload_tokens > 0 && (!is_mixture || ffn.shared_intermediate_size > 0);
    if (!comes_there && !layer.shared && (is_mixture || layer.experts.empty())) continue;
    throw Error(ErrorCode::kUnsupported, Field{"adapters"},
                "a device that has FFNs of dense layers, or those beside experts, takes no "
                "adapters: run this on the processor with --device none");
  }
}

namespace {

void RefusePlacement(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "plan", "matrices on a device: " + what);
}

void CheckExperts(const PlacedLayer& layer, int64_t all, size_t number) {
  const std::vector<int32_t>& experts = layer.experts;
  const bool ascend =
      std::adjacent_find(experts.begin(), experts.end(), std::greater_equal<>()) == experts.end();
  if (ascend && experts.front() >= 0 && experts.back() < std::max<int64_t>(all, 1)) return;
  RefusePlacement(fmt::format("experts of layer {} that it does not have", number));
}

// Numbers matrices as they are placed.
class Placer {
 public:
  explicit Placer(PlacedMatrices& placed) : placed_(placed) {}

  int32_t Place(const ResidentTensor* tensor, std::vector<int32_t> experts,
                const ResidentTensor* bias = nullptr) {
    if (tensor == nullptr) return -1;
    placed_.shape.matrices.push_back({.type = tensor->stored->dtype,
                                      .rows = tensor->decl.rows,
                                      .columns = tensor->decl.cols,
                                      .count = std::ssize(experts),
                                      .has_bias = bias != nullptr});
    placed_.tensors.push_back({tensor, bias, std::move(experts)});
    return static_cast<int32_t>(placed_.tensors.size()) - 1;
  }

  void PlaceAttention(const TensorRoles& roles, size_t layer) {
    const auto [q, k, v, output] = roles.Attention(layer);
    if (output == nullptr) RefusePlacement("attention that has no such matrices");
    DeviceLayer& to = placed_.layers[layer];
    to.q = Place(q, {0});
    to.k = Place(k, {0});
    to.v = Place(v, {0});
    to.attention_output = Place(output, {0});
  }

  // all: experts of the layer; 0: it is dense.
  void PlaceExperts(const TensorRoles& roles, size_t layer, int64_t all,
                    const std::vector<int32_t>& experts) {
    const auto [gate, up, down] = roles.Ffn(layer);
    const LayerWeights& w = roles.layer(layer);
    DeviceLayer& to = placed_.layers[layer];
    to.gate = Place(gate, experts, roles.Find(w.ffn_gate_bias));
    to.up = Place(up, experts, roles.Find(w.ffn_up_bias));
    to.down = Place(down, experts, roles.Find(w.ffn_down_bias));
    to.places.assign(static_cast<size_t>(std::max<int64_t>(all, 1)), -1);
    for (size_t i = 0; i < experts.size(); ++i) {
      to.places[static_cast<size_t>(experts[i])] = static_cast<int32_t>(i);
    }
  }

  void PlaceShared(const TensorRoles& roles, size_t layer) {
    const auto [gate, up, down] = roles.Shared(layer);
    if (down == nullptr) RefusePlacement("an FFN beside experts that is not there");
    DeviceLayer& to = placed_.layers[layer];
    to.shared_gate = Place(gate, {0});
    to.shared_up = Place(up, {0});
    to.shared_down = Place(down, {0});
  }

  void PlacePredictor(const TensorRoles& roles, size_t layer) {
    const auto [down, up, bias] = roles.Predictor(layer);
    if (down == nullptr) RefusePlacement("a predictor that is not there");
    if (down->decl.experts > 1) RefusePlacement("predictors of experts");
    DeviceLayer& to = placed_.layers[layer];
    to.predictor_down = Place(down, {0});
    to.predictor_up = Place(up, {0}, bias);
    accel::DevicePredictorsShape& shape = placed_.predictors;
    shape.hidden = down->decl.cols;
    shape.rank = std::max(shape.rank, down->decl.rows);
    shape.neurons = std::max(shape.neurons, up->decl.rows);
  }

 private:
  PlacedMatrices& placed_;
};

}  // namespace

PlacedMatrices::PlacedMatrices(const LoadPlan& plan, const MatrixPlacement& placement,
                               const DevicePasses& passes)
    : layers(plan.spec.layers.size()) {
  if (placement.layers.size() != layers.size()) {
    RefusePlacement(fmt::format("the model has {} layers, and the plan {}", layers.size(),
                                placement.layers.size()));
  }
  if (placement.kv_tokens > 0) {
    const std::string obstacle = WhyNoKvOnDevice(plan.spec, passes.kv_codec);
    if (!obstacle.empty()) throw Error(ErrorCode::kUnsupported, Field{"kv"}, obstacle);
  }
  const TensorRoles roles(plan);
  Placer placer(*this);
  shape.max_tokens = passes.max_tokens;
  attention = AttentionShapeOf(plan.spec, placement, passes);
  whole = LayersShapeOf(plan.spec, placement, passes);
  predictors.max_tokens = std::min(passes.max_tokens, accel::DevicePredictors::kTokensOfLaunch);
  int32_t attending = 0, wholes = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const PlacedLayer& from = placement.layers[l];
    if (from.attention) placer.PlaceAttention(roles, l);
    if (from.attention && placement.kv_tokens > 0) layers[l].attention = attending++;
    if (IsWhole(plan.spec, placement, l)) layers[l].whole = wholes++;
    if (!from.experts.empty()) {
      CheckExperts(from, plan.spec.layers[l].ffn.num_experts, l);
      placer.PlaceExperts(roles, l, plan.spec.layers[l].ffn.num_experts, from.experts);
    }
    if (from.shared) placer.PlaceShared(roles, l);
    if (from.predictor) placer.PlacePredictor(roles, l);
    if (!from.experts.empty() || from.shared) shape.hidden = plan.spec.hidden_size;
  }
  if (placement.output) {
    if (roles.Output() == nullptr) RefusePlacement("an output matrix that is the embedding");
    output = placer.Place(roles.Output(), {0});
  }
  if (placement.upload_tokens > 0) MakeRoomFor(UploadedUnits(plan, placement), plan.spec);
}

void PlacedMatrices::MakeRoomFor(const std::vector<PlacedUnit>& units, const ModelSpec& spec) {
  slot_bytes = PromptUploads::SlotBytes(units);
  for (const PlacedUnit& unit : units) {
    for (const PlacedUnit::Part& part : unit.parts) {
      if (part.tensor == nullptr) continue;
      shape.visitors.push_back({.type = part.tensor->stored->dtype,
                                .rows = part.tensor->decl.rows,
                                .columns = part.tensor->decl.cols});
    }
  }
  if (!units.empty()) shape.hidden = spec.hidden_size;
}

std::map<std::string, uint64_t> PlacedMatrices::Ledger() const {
  std::map<std::string, uint64_t> ledger = {{"matrices", DeviceMatrices::MatrixBytes(shape)},
                                            {"scratch", DeviceMatrices::ScratchBytes(shape)}};
  if (slot_bytes > 0) ledger["uploads"] = slot_bytes;
  if (attention.slots > 0) {
    ledger["kv"] = accel::DeviceAttention::KvBytes(attention);
    ledger["attention"] = accel::DeviceAttention::ScratchBytes(attention);
  }
  if (whole.any()) ledger["layers"] = accel::DeviceLayers::ScratchBytes(whole);
  if (predictors.any()) {
    ledger["predictors"] = accel::DevicePredictors::ScratchBytes(predictors);
  }
  return ledger;
}

void PlacedMatrices::Fill(const GgufFile& file, DeviceMatrices& device,
                          const ProgressFn& progress) const {
  const uint64_t total = DeviceMatrices::MatrixBytes(shape);
  uint64_t done = 0;
  std::vector<std::byte> stored, scratch;
  std::vector<float> bias;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ResidentTensor& tensor = *tensors[i].tensor;
    const auto number = static_cast<int32_t>(i);
    const uint64_t bytes = shape.matrices[i].bytes_of_one();
    const uint64_t row_bytes = bytes / static_cast<uint64_t>(tensor.decl.rows);
    for (size_t e = 0; e < tensors[i].experts.size(); ++e) {
      const auto expert = static_cast<uint64_t>(tensors[i].experts[e]);
      const uint64_t begin = tensor.stored_begin() + expert * tensor.stored_rows() * row_bytes;
      for (uint64_t first = 0; first < bytes; first += kFillBytes) {
        stored.resize(std::min(kFillBytes, bytes - first));
        file.ReadTensor(*tensor.stored, begin + first, stored);
        device.Fill(number, e * bytes + first, stored);
        done += stored.size();
        if (progress) progress(done, total);
      }
      const ResidentTensor* const from = tensors[i].bias;
      if (from == nullptr) continue;
      const auto rows = static_cast<size_t>(tensor.decl.rows);
      // Of gate and up together where the file has both in one.
      const int64_t all = from->decl.of > 0 ? from->decl.of : from->decl.cols;
      const DType type = from->stored->dtype;
      stored.resize(RowBytes(type, rows));
      file.ReadTensor(*from->stored,
                      from->stored_begin() + expert * RowBytes(type, static_cast<size_t>(all)),
                      stored);
      bias.resize(rows);
      const WeightView floats = {.cols = tensor.decl.rows, .rows = 1};
      MakeResident(type, stored, 1, floats, reinterpret_cast<std::byte*>(bias.data()), scratch);
      device.FillBias(number, static_cast<int64_t>(e), bias);
      done += rows * sizeof(float);
    }
  }
  if (progress) progress(total, total);
}

}  // namespace hearth
