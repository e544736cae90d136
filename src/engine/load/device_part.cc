#include "engine/load/device_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/units.h"
#include "engine/load/placed_layers.h"
#include "plan/ledger.h"

namespace hearth {
namespace {

// Where the user names no size, 1 / kFreeShare of a device's memory is left to other programs.
constexpr uint64_t kFreeShare = 8;

uint64_t MemoryFor(const DeviceRequest& request, const accel::DeviceInfo& info) {
  const std::optional<uint64_t> asked =
      request.planned ? std::optional(request.planned->memory_bytes) : request.memory_bytes;
  if (!asked && info.shares_memory) {
    throw Error(ErrorCode::kInvalidArgument, Field{"device_memory"},
                info.name + " shares the memory of the host: say how much of it is the device's");
  }
  const uint64_t most = asked.value_or(info.memory_bytes - info.memory_bytes / kFreeShare);
  if (most <= info.memory_bytes) return most;
  throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"}, "the memory of " + info.name,
              "at most " + FormatSize(info.memory_bytes), FormatSize(most));
}

void CheckPlanned(const std::map<std::string, uint64_t>& ledger, const PlannedDevice& planned) {
  if (ledger != planned.ledger) {
    throw Error(ErrorCode::kInvalidArgument, "plan", "device.ledger", LedgerText(ledger),
                LedgerText(planned.ledger));
  }
  if (LedgerSum(ledger) <= planned.memory_bytes) return;
  throw Error(ErrorCode::kOutOfBudget, "plan", "device.ledger: its sum",
              "at most device.memory_bytes " + FormatSize(planned.memory_bytes),
              FormatSize(LedgerSum(ledger)));
}

// The entries of both; those of one name are added up.
std::map<std::string, uint64_t> LedgerOfBoth(const std::optional<PlacedNeurons>& neurons,
                                             const std::optional<PlacedMatrices>& matrices) {
  std::map<std::string, uint64_t> ledger;
  if (neurons) ledger = neurons->Ledger();
  if (!matrices) return ledger;
  for (const auto& [name, bytes] : matrices->Ledger()) ledger[name] += bytes;
  return ledger;
}

void RefuseOption(const char* field, const char* why) {
  throw Error(ErrorCode::kInvalidArgument, Field{field}, why);
}

void CheckRequest(const DeviceRequest& request, const LoadPlan& plan) {
  if (!plan.is_packed && request.neurons) {
    RefuseOption("device_neurons",
                 "a device takes neurons of a packed file, and this one is not "
                 "packed: 'hearth pack' makes one");
  }
  if (plan.is_packed && (request.matrices.layers || request.matrices.experts)) {
    RefuseOption(request.matrices.layers ? "device_layers" : "device_experts",
                 "of a packed file a device takes neurons");
  }
  if (request.planned && plan.is_packed == request.planned->layer_neurons.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "plan",
                plan.is_packed ? "it places matrices, and this file is packed"
                               : "it places neurons, and this file is not packed");
  }
  if (plan.is_packed && request.neurons && request.kv_tokens) {
    RefuseOption("device_kv", "where the number of neurons is said, the device has nothing else");
  }
  if (plan.is_packed && request.upload_tokens > 0) {
    RefuseOption("device_prompts", "prompts of a packed file are computed where its neurons lie");
  }
}

}  // namespace

DevicePart::DevicePart(const DeviceRequest& request, const GgufFile& file, const LoadPlan& plan,
                       const DevicePasses& passes)
    : is_traced_(request.is_traced), passes_(passes) {
  CheckRequest(request, plan);
  const accel::DeviceList list = accel::ListDevices();
  const std::optional<size_t> chosen = accel::ChooseDevice(request.choice, list);
  if (!chosen) {
    throw Error(ErrorCode::kNotFound, Field{"device"},
                list.devices.empty() ? "there is none: " + list.why_none
                                     : "there is none but the processor");
  }
  index_ = *chosen;
  const accel::DeviceInfo& info = list.devices[index_];
  const uint64_t bytes = MemoryFor(request, info);
  std::optional<PlacedMatrices> placed;
  if (plan.is_packed) {
    placed = PlacePacked(request, file, plan, info, bytes);
  } else {
    placement_ = request.planned ? request.planned->matrices
                                 : ChooseMatrices(plan, passes, {bytes, info.max_buffer_bytes},
                                                  {.counts = request.matrices,
                                                   .upload_tokens = request.upload_tokens,
                                                   .kv_tokens = request.kv_tokens});
    placed.emplace(plan, placement_, passes);
  }
  if (request.planned) CheckPlanned(LedgerOfBoth(neurons_, placed), *request.planned);
  device_ = request.open(index_, {.memory_bytes = bytes, .cache_folder = request.programs_folder});
  if (neurons_) ffns_ = std::make_unique<accel::DeviceFfns>(*device_, neurons_->shape);
  if (placed) MakeMatrices(*std::move(placed), plan);
}

// Places a packed file: first matrices outside its FFNs, because every token reads all of them,
// then neurons in what memory is left. Returns the matrices, or nothing if there are only neurons.
std::optional<PlacedMatrices> DevicePart::PlacePacked(const DeviceRequest& request,
                                                      const GgufFile& file, const LoadPlan& plan,
                                                      const accel::DeviceInfo& info,
                                                      uint64_t bytes) {
  if (request.planned) {
    neurons_.emplace(file, plan, passes_.max_tokens, info, *request.planned);
    placement_ = request.planned->matrices;
  } else if (!request.neurons) {
    const uint64_t least = PlacedNeurons::LeastBytes(file, plan, passes_.max_tokens);
    placement_ =
        ChooseMatrices(plan, passes_, {bytes - std::min(bytes, least), info.max_buffer_bytes},
                       {.kv_tokens = request.kv_tokens});
  }
  std::optional<PlacedMatrices> placed;
  if (placement_.any()) placed.emplace(plan, placement_, passes_);
  if (!request.planned) {
    neurons_.emplace(file, plan, passes_.max_tokens, info, bytes - (placed ? placed->bytes() : 0),
                     request.neurons);
  }
  return placed;
}

void DevicePart::MakeMatrices(PlacedMatrices placed, const LoadPlan& plan) {
  matrices_ = std::make_unique<accel::DeviceMatrices>(*device_, std::move(placed.shape));
  model_ = {matrices_.get(), std::move(placed.layers), placed.output};
  if (placed.predictors.any()) {
    std::vector<accel::DevicePredictor> predictors;
    for (const DeviceLayer& layer : model_.layers) {
      predictors.push_back({.down = matrices_->At(layer.predictor_down),
                            .up = matrices_->At(layer.predictor_up),
                            .relu = plan.predictors->spec.relu});
    }
    predictors_ = std::make_unique<accel::DevicePredictors>(*matrices_, placed.predictors,
                                                            std::move(predictors));
  }
  if (placement_.kv_tokens == 0) return;
  attention_ = std::make_unique<accel::DeviceAttention>(*matrices_, placed.attention);
  kv_pages_.emplace(placed.attention.slots);
  if (placed.whole.any()) {
    whole_ = std::make_unique<accel::DeviceLayers>(*matrices_, *attention_, placed.whole);
  }
}

void DevicePart::MakeAttention(const Model& model, Budget& budget) {
  if (!attention_) return;
  kv_staging_ = Buffer(budget, "kv staging", attention_->shape().page_bytes());
  model_.attention = attention_.get();
  model_.attention_layers = MakeAttentionLayers(model, model_, *attention_);
  model_.kv_pages = &*kv_pages_;
  model_.kv_staging = {kv_staging_.data(), attention_->shape().page_bytes()};
  if (!whole_) return;
  model_.whole = whole_.get();
  model_.whole_layers = MakeWholeLayers(model, model_, *whole_);
}

void DevicePart::MakeUploads(const Model& model, Budget& budget) {
  if (placement_.upload_tokens == 0) return;
  GgufFile file = model.Reopen();
  LoadPlan plan = PlanLoad(file);
  uploads_ = std::make_unique<PromptUploads>(std::move(file), std::move(plan), placement_,
                                             model.weights(), *device_, budget);
  model_.uploads = uploads_.get();
}

std::string DevicePart::PlacementText() const {
  std::string text;
  if (ffns_) {
    for (const int64_t neurons : layer_neurons()) text += "/" + std::to_string(neurons);
    if (!matrices_) return text;
  }
  for (const PlacedLayer& layer : placement_.layers) {
    text += fmt::format("/{}{}{}{}", layer.attention ? "a" : "", layer.shared ? "s" : "",
                        layer.predictor ? "p" : "", fmt::join(layer.experts, ","));
  }
  if (placement_.upload_tokens > 0) text += fmt::format("/u{}", placement_.upload_tokens);
  if (placement_.kv_tokens > 0) text += fmt::format("/k{}", placement_.kv_tokens);
  return text + (placement_.output ? "/o" : "");
}

void DevicePart::Fill(const GgufFile& file, const LoadPlan& plan, const ProgressFn& progress) {
  if (ffns_) {
    neurons_->Fill(file, plan, *ffns_, progress);
    if (is_traced_) ffns_->Trace(trace_);
  }
  if (matrices_) {
    PlacedMatrices(plan, placement_, passes_).Fill(file, *matrices_, progress);
    if (is_traced_) matrices_->Trace(trace_);
  }
}

}  // namespace hearth
