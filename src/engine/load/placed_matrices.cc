#include "engine/load/placed_matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "engine/load/prompt_uploads.h"
#include "engine/load/tensor_roles.h"
#include "ops/repack.h"

namespace hearth {
namespace {

using accel::DeviceMatrices;
using accel::MatrixKernels;

// Bytes of a file that are read and uploaded at a time.
constexpr uint64_t kFillBytes = uint64_t{4} << 20;

// Something that is placed as a whole.
struct Unit {
  uint64_t bytes = 0;
  std::string obstacle;  // why no device takes it; empty: one may
  std::function<void(MatrixPlacement&)> place;
};

// Matrices of a layer, of each the last of so many experts; null ones are not there.
struct MatricesOfUnit {
  std::span<const ResidentTensor* const> tensors;
  uint64_t experts = 1;
  bool has_bias = false;
};

Unit MakeUnit(const MatricesOfUnit& matrices, uint64_t max_buffer_bytes,
              std::function<void(MatrixPlacement&)> place) {
  Unit unit{.place = std::move(place)};
  for (const ResidentTensor* tensor : matrices.tensors) {
    if (tensor == nullptr) continue;
    const uint64_t one = tensor->stored_expert_bytes();
    unit.bytes += one;
    if (matrices.has_bias) unit.bytes += static_cast<uint64_t>(tensor->decl.rows) * sizeof(float);
    if (!MatrixKernels::Has(tensor->stored->dtype)) {
      unit.obstacle = fmt::format("devices have no kernel for {}, the type of {}",
                                  NameOf(tensor->stored->dtype), tensor->decl.name);
    } else if (one * matrices.experts > max_buffer_bytes) {
      unit.obstacle = fmt::format("{} of {} do not fit into one buffer of {}",
                                  FormatSize(one * matrices.experts), tensor->decl.name,
                                  FormatSize(max_buffer_bytes));
    }
  }
  return unit;
}

bool IsMixture(const LoadPlan& plan, size_t layer) {
  return plan.spec.layers[layer].ffn.num_experts > 0;
}

MatrixPlacement Empty(const LoadPlan& plan) {
  MatrixPlacement placement;
  placement.layers.resize(plan.spec.layers.size());
  return placement;
}

// What every token needs, of the first `layers` layers. Attention takes kv_bytes more than its
// matrices. A packed model's FFNs are not matrices and are left out.
std::vector<Unit> UnitsOfEveryToken(const LoadPlan& plan, const TensorRoles& roles, size_t layers,
                                    uint64_t max_buffer_bytes, uint64_t kv_bytes, bool predicts) {
  std::vector<Unit> units;
  for (size_t l = 0; l < layers && !plan.is_packed; ++l) {
    const FfnSpec& ffn = plan.spec.layers[l].ffn;
    if (!IsMixture(plan, l)) {
      const auto tensors = roles.Ffn(l);
      units.push_back(MakeUnit({.tensors = tensors, .has_bias = ffn.bias}, max_buffer_bytes,
                               [l](MatrixPlacement& p) { p.layers[l].experts = {0}; }));
    } else if (ffn.shared_intermediate_size > 0) {
      const auto tensors = roles.Shared(l);
      units.push_back(MakeUnit({tensors}, max_buffer_bytes,
                               [l](MatrixPlacement& p) { p.layers[l].shared = true; }));
    }
  }
  for (size_t l = 0; l < layers; ++l) {
    const auto tensors = roles.Attention(l);
    units.push_back(MakeUnit({tensors}, max_buffer_bytes,
                             [l](MatrixPlacement& p) { p.layers[l].attention = true; }));
    units.back().bytes += kv_bytes;
  }
  for (size_t l = 0; l < layers && predicts; ++l) {
    const auto [down, up, bias] = roles.Predictor(l);
    if (down == nullptr || down->decl.experts > 1) continue;
    const std::array matrices = {down, up};
    units.push_back(MakeUnit({matrices}, max_buffer_bytes,
                             [l](MatrixPlacement& p) { p.layers[l].predictor = true; }));
    units.back().bytes += static_cast<uint64_t>(up->decl.rows) * sizeof(float);
  }
  return units;
}

// One more expert of every mixture, as often as there are experts; the first ones first.
std::vector<Unit> UnitsOfExperts(const LoadPlan& plan, const TensorRoles& roles, int64_t experts,
                                 uint64_t max_buffer_bytes) {
  std::vector<Unit> units;
  for (int64_t e = 0; e < experts; ++e) {
    for (size_t l = 0; l < plan.spec.layers.size(); ++l) {
      const FfnSpec& ffn = plan.spec.layers[l].ffn;
      if (e >= ffn.num_experts) continue;
      const auto tensors = roles.Ffn(l);
      units.push_back(MakeUnit(
          {tensors, static_cast<uint64_t>(e) + 1, ffn.bias}, max_buffer_bytes,
          [l, e](MatrixPlacement& p) { p.layers[l].experts.push_back(static_cast<int32_t>(e)); }));
    }
  }
  return units;
}

int64_t MostExperts(const LoadPlan& plan) {
  int64_t most = 0;
  for (const LayerSpec& layer : plan.spec.layers) most = std::max(most, layer.ffn.num_experts);
  return most;
}

void CheckCounts(const LoadPlan& plan, const MatrixCounts& counts) {
  const auto check = [](const char* field, const char* what, std::optional<int64_t> asked,
                        int64_t most) {
    if (!asked || (*asked >= 0 && *asked <= most)) return;
    throw Error(ErrorCode::kInvalidArgument, Field{field}, what, fmt::format("at most {}", most),
                std::to_string(*asked));
  };
  check("device_layers", "layers on the device", counts.layers, std::ssize(plan.spec.layers));
  check("device_experts", "experts of every layer on the device", counts.experts,
        MostExperts(plan));
}

[[noreturn]] void RefuseRoom(const char* what, uint64_t needed, uint64_t bytes) {
  throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"}, what,
              fmt::format("at least {}M", (needed + (uint64_t{1} << 20) - 1) >> 20),
              FormatSize(bytes));
}

// Of a device's memory, 1 / kKvShare at most is for keys and values where the user does not say.
constexpr uint64_t kKvShare = 4;

// Returns MatrixPlacement::kv_tokens.
int64_t TokensOfDeviceKv(const ModelSpec& spec, const DevicePasses& passes, const DeviceRoom& room,
                         std::optional<int64_t> asked) {
  if (asked == int64_t{0}) return 0;
  const std::string obstacle = WhyNoKvOnDevice(spec, passes.kv_codec);
  if (!obstacle.empty()) {
    if (asked) throw Error(ErrorCode::kUnsupported, Field{"device_kv"}, obstacle);
    return 0;
  }
  const uint64_t of_page = DeviceKvBytesOfLayer(spec, passes.kv_codec, KvLayout::kPageTokens);
  const auto in_buffer = static_cast<int64_t>(room.max_buffer_bytes / of_page);
  if (asked) {
    const int64_t pages = KvLayout::PagesFor(*asked);
    if (pages <= in_buffer) return pages * KvLayout::kPageTokens;
    throw Error(ErrorCode::kUnsupported, Field{"device_kv"},
                "tokens whose keys and values of one layer fit into a buffer",
                fmt::format("at most {}", in_buffer * KvLayout::kPageTokens),
                std::to_string(*asked));
  }
  const auto layers = static_cast<uint64_t>(spec.num_layers);
  const auto in_share = static_cast<int64_t>(room.bytes / kKvShare / (of_page * layers));
  return std::min({KvLayout::PagesFor(passes.kv_tokens), in_share, in_buffer}) *
         KvLayout::kPageTokens;
}

// What is wanted of a model, in the order of what a byte saves.
struct WantedUnits {
  std::vector<Unit> units;
  bool may_be_none = false;  // a caller adds experts or neurons
};

WantedUnits ListWanted(const LoadPlan& plan, const DevicePasses& passes, const DeviceRoom& room,
                       const MatrixWishes& wishes, uint64_t kv_bytes) {
  const TensorRoles roles(plan);
  const MatrixCounts& counts = wishes.counts;
  const bool is_exact = counts.any();
  const bool leaves_experts = counts.leaves_experts || plan.is_packed;
  const int64_t layers = counts.layers.value_or(is_exact ? 0 : std::ssize(plan.spec.layers));
  const int64_t experts =
      counts.experts.value_or(is_exact || leaves_experts ? 0 : MostExperts(plan));
  WantedUnits wanted = {
      .units = UnitsOfEveryToken(plan, roles, static_cast<size_t>(layers), room.max_buffer_bytes,
                                 kv_bytes, passes.predicts),
      .may_be_none = plan.is_packed || (counts.leaves_experts && MostExperts(plan) > 0)};
  std::vector<Unit>& units = wanted.units;
  if (const ResidentTensor* const output = roles.Output(); output != nullptr && !is_exact) {
    units.push_back(MakeUnit({std::array{output}}, room.max_buffer_bytes,
                             [](MatrixPlacement& p) { p.output = true; }));
  }
  std::vector<Unit> of_experts = UnitsOfExperts(plan, roles, experts, room.max_buffer_bytes);
  std::move(of_experts.begin(), of_experts.end(), std::back_inserter(units));
  std::string obstacle = "it has no matrices that a device takes";
  std::erase_if(units, [&](const Unit& unit) {
    if (!unit.obstacle.empty()) obstacle = unit.obstacle;
    if (is_exact && !unit.obstacle.empty()) {
      throw Error(ErrorCode::kUnsupported, Field{"device"}, unit.obstacle);
    }
    return !unit.obstacle.empty();
  });
  if (units.empty() && !wanted.may_be_none && wishes.upload_tokens == 0) {
    throw Error(ErrorCode::kUnsupported, Field{"device"}, obstacle);
  }
  return wanted;
}

MatrixPlacement ChooseWithKv(const LoadPlan& plan, const DevicePasses& passes,
                             const DeviceRoom& room, const MatrixWishes& wishes,
                             int64_t kv_tokens) {
  const uint64_t kv_bytes =
      kv_tokens == 0 ? 0 : DeviceKvBytesOfLayer(plan.spec, passes.kv_codec, kv_tokens);
  const WantedUnits wanted = ListWanted(plan, passes, room, wishes, kv_bytes);
  MatrixPlacement placement = Empty(plan);
  if (wanted.units.empty() && wanted.may_be_none) return placement;
  placement.upload_tokens = wishes.upload_tokens;
  // Scratch for all that may come, and slots for what nothing else may be.
  MatrixPlacement all = Empty(plan);
  all.kv_tokens = kv_tokens;
  for (const Unit& unit : wanted.units) unit.place(all);
  const bool uploads = wishes.upload_tokens > 0;
  const uint64_t scratch = PlacedMatrices(plan, all, passes).scratch_bytes() +
                           (uploads ? PlacedMatrices(plan, placement, passes).bytes() : 0);
  uint64_t used = scratch, needed = scratch, smallest = UINT64_MAX;
  for (const Unit& unit : wanted.units) {
    needed += unit.bytes;
    smallest = std::min(smallest, unit.bytes);
    if (used + unit.bytes > room.bytes) continue;
    unit.place(placement);
    used += unit.bytes;
  }
  if ((wishes.counts.any() || wanted.units.empty()) && needed > room.bytes) {
    RefuseRoom("the matrices that were asked for and scratch for them", needed, room.bytes);
  }
  if (uploads && scratch > room.bytes) {
    RefuseRoom("slots for uploads and scratch", scratch, room.bytes);
  }
  const bool attends = std::any_of(placement.layers.begin(), placement.layers.end(),
                                   [](const PlacedLayer& layer) { return layer.attention; });
  placement.kv_tokens = attends ? kv_tokens : 0;
  if (wanted.may_be_none) return placement;  // others may follow
  if (!placement.any()) RefuseRoom("one matrix and scratch", scratch + smallest, room.bytes);
  return placement;
}

}  // namespace

MatrixPlacement ChooseMatrices(const LoadPlan& plan, const DevicePasses& passes,
                               const DeviceRoom& room, const MatrixWishes& wishes) {
  CheckCounts(plan, wishes.counts);
  const int64_t kv_tokens = TokensOfDeviceKv(plan.spec, passes, room, wishes.kv_tokens);
  if (kv_tokens > 0 && !wishes.kv_tokens) {
    try {
      MatrixPlacement placement = ChooseWithKv(plan, passes, room, wishes, kv_tokens);
      if (placement.kv_tokens > 0) return placement;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfBudget) throw;
    }
    // There is no room for keys and values: the processor attends.
    return ChooseWithKv(plan, passes, room, wishes, 0);
  }
  const MatrixPlacement placement = ChooseWithKv(plan, passes, room, wishes, kv_tokens);
  if (placement.kv_tokens == kv_tokens) return placement;
  throw Error(ErrorCode::kOutOfBudget, Field{"device_kv"},
              "no layer's attention fits into the device's memory beside its keys and values: "
              "fewer tokens take less");
}

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
  predictors.max_tokens = std::min(passes.max_tokens, accel::DevicePredictors::kTokensOfLaunch);
  int32_t attending = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const PlacedLayer& from = placement.layers[l];
    if (from.attention) placer.PlaceAttention(roles, l);
    if (from.attention && placement.kv_tokens > 0) layers[l].attention = attending++;
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
