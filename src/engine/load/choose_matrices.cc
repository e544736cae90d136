#include "engine/load/choose_matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accel/matrix_kernels.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/load/placed_matrices.h"
#include "engine/load/tensor_roles.h"

namespace hearth {
namespace {

// Something that is placed as a whole.
struct Unit {
  uint64_t bytes = 0;
  std::string obstacle;  // why no device takes it; empty: one may
  std::function<void(MatrixPlacement&)> place;
};

// The matrices of a layer that a unit takes: one expert of each tensor. Null tensors do not exist.
struct MatricesOfUnit {
  std::span<const ResidentTensor* const> tensors;
  uint64_t experts = 1;  // that the device has in each tensor's buffer after this unit is placed
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
    if (!accel::MatrixKernels::Has(tensor->stored->dtype)) {
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

// Keys and values get at most 1 / kDeviceKvShare of a device's memory, unless the user says how
// many tokens.
constexpr uint64_t kDeviceKvShare = 4;

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
  const auto in_share = static_cast<int64_t>(room.bytes / kDeviceKvShare / (of_page * layers));
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

}  // namespace hearth
