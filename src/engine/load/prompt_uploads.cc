#include "engine/load/prompt_uploads.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "accel/matrix_kernels.h"
#include "base/error.h"
#include "base/rounding.h"
#include "engine/load/tensor_roles.h"

namespace hearth {
namespace {

// Of a file, read and uploaded at a time; and such pieces that are read ahead.
constexpr uint64_t kUploadPieceBytes = uint64_t{4} << 20;
constexpr size_t kPieces = 4;
constexpr uint64_t kAlignment = 64;

// What a device needs of the matrices of a unit.
struct UnitTensors {
  UploadUnit unit;
  std::vector<const ResidentTensor*> tensors;
  bool has_biases = false;
};

bool HasKernels(const std::vector<const ResidentTensor*>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const ResidentTensor* tensor) {
    return tensor == nullptr || accel::MatrixKernels::Has(tensor->stored->dtype);
  });
}

void RequireKernels(const std::vector<const ResidentTensor*>& tensors) {
  for (const ResidentTensor* tensor : tensors) {
    if (tensor == nullptr || accel::MatrixKernels::Has(tensor->stored->dtype)) continue;
    throw Error(ErrorCode::kUnsupported, Field{"device_prompts"},
                std::string("devices have no kernel for ") + NameOf(tensor->stored->dtype) +
                    ", the type of " + tensor->decl.name);
  }
}

PlacedUnit Place(const UnitTensors& from) {
  PlacedUnit placed{.unit = from.unit};
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const ResidentTensor* const tensor = from.tensors[i];
    if (tensor == nullptr) continue;
    PlacedUnit::Part& part = placed.parts[i];
    const auto rows = static_cast<uint64_t>(tensor->decl.rows);
    part.tensor = tensor;
    part.offset = placed.bytes;
    part.bytes = tensor->stored_expert_bytes();
    placed.bytes += RoundUp(part.bytes, kAlignment);
    if (!from.has_biases) continue;
    part.has_bias = true;
    part.bias_offset = placed.bytes;
    placed.bytes += RoundUp(rows * sizeof(float), kAlignment);
  }
  return placed;
}

// Of one expert, in pieces.
void AddChunks(const PlacedUnit& unit, std::vector<LoadChunk>& chunks) {
  for (const PlacedUnit::Part& part : unit.parts) {
    if (part.tensor == nullptr) continue;
    const auto rows = static_cast<uint64_t>(part.tensor->decl.rows);
    const uint64_t row_bytes = part.bytes / rows;
    const uint64_t at_once = std::max<uint64_t>(kUploadPieceBytes / row_bytes, 1);
    for (uint64_t first = 0; first < rows; first += at_once) {
      chunks.push_back({part.tensor, static_cast<uint64_t>(unit.unit.expert), first,
                        std::min(at_once, rows - first)});
    }
  }
}

}  // namespace

std::vector<PlacedUnit> UploadedUnits(const LoadPlan& plan, const MatrixPlacement& placement) {
  const TensorRoles roles(plan);
  std::vector<PlacedUnit> units;
  for (size_t l = 0; l < plan.spec.layers.size(); ++l) {
    const FfnSpec& ffn = plan.spec.layers[l].ffn;
    const PlacedLayer& layer = placement.layers[l];
    const auto number = static_cast<int64_t>(l);
    const auto attention = roles.Attention(l);
    const std::vector<const ResidentTensor*> of_attention(attention.begin(), attention.end());
    if (!layer.attention && HasKernels(of_attention)) {
      units.push_back(Place({{UnitKind::kAttention, number}, of_attention}));
    }
    const auto experts = roles.Ffn(l);
    const std::vector<const ResidentTensor*> of_experts(experts.begin(), experts.end());
    for (int64_t e = 0; e < std::max<int64_t>(ffn.num_experts, 1); ++e) {
      if (layer.HasExpert(static_cast<int32_t>(e))) continue;
      RequireKernels(of_experts);
      units.push_back(Place({{UnitKind::kExpert, number, e}, of_experts, ffn.bias}));
    }
    if (ffn.num_experts == 0 || ffn.shared_intermediate_size == 0 || layer.shared) continue;
    const auto shared = roles.Shared(l);
    const std::vector<const ResidentTensor*> of_shared(shared.begin(), shared.end());
    RequireKernels(of_shared);
    units.push_back(Place({{UnitKind::kShared, number}, of_shared}));
  }
  return units;
}

uint64_t PromptUploads::HostBytes() { return kPieces * LoadReader::BufferBytes(kUploadPieceBytes); }

uint64_t PromptUploads::SlotBytes(const std::vector<PlacedUnit>& units) {
  uint64_t largest = 0;
  for (const PlacedUnit& unit : units) largest = std::max(largest, unit.bytes);
  return kSlots * largest;
}

PromptUploads::PromptUploads(GgufFile file, LoadPlan plan, const MatrixPlacement& placement,
                             const ModelWeights& weights, accel::Device& device, Budget& budget)
    : file_(std::move(file)),
      plan_(std::move(plan)),
      least_tokens_(placement.upload_tokens),
      weights_(weights),
      units_(UploadedUnits(plan_, placement)),
      charge_(budget.Charge("upload buffers", units_.empty() ? 0 : HostBytes())),
      source_(file_, plan_.io, !plan_.drop_page_cache) {
  for (size_t i = 0; i < units_.size(); ++i) {
    AddChunks(units_[i], chunks_);
    end_of_unit_.push_back(chunks_.size());
    numbers_[KeyOf(units_[i].unit)] = i;
  }
  if (units_.empty()) return;
  for (size_t i = 0; i < kSlots; ++i) {
    slots_.push_back(device.MakeBuffer("uploads", SlotBytes(units_) / kSlots));
  }
  used_.resize(kSlots);
  queue_ = device.MakeQueue();
}

PromptUploads::~PromptUploads() { End(); }

bool PromptUploads::Has(const UploadUnit& unit) const { return numbers_.contains(KeyOf(unit)); }

void PromptUploads::Begin() {
  End();
  states_.assign(units_.size(), State::kComing);
  is_stopped_ = false;
  error_ = nullptr;
  next_ = 0;
  thread_ = std::thread([this] { Work(); });
}

void PromptUploads::Work() noexcept {
  try {
    LoadReader reader(source_, kUploadPieceBytes, kPieces);
    size_t asked = 0;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!WaitForSlot(unit)) return;
      const size_t begin = unit == 0 ? 0 : end_of_unit_[unit - 1];
      for (size_t i = begin; i < end_of_unit_[unit]; ++i) {
        while (!reader.full() && asked < chunks_.size()) reader.Ask(chunks_[asked++]);
        UploadPiece(unit, reader.Take());
        reader.Done(0);
      }
      UploadBiases(unit);
      const std::lock_guard lock(mutex_);
      if (states_[unit] == State::kComing) states_[unit] = State::kHere;
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

// Until nothing reads what the slot has. False where the pass has ended.
bool PromptUploads::WaitForSlot(size_t unit) {
  std::unique_ptr<accel::DeviceEvent> used;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return is_stopped_ || unit < kSlots || states_[unit - kSlots] == State::kDone;
    });
    if (is_stopped_) return false;
    used = std::move(used_[unit % kSlots]);
  }
  if (used) used->Wait();
  return true;
}

// Pieces of a unit that the pass has left out are read, and go nowhere.
void PromptUploads::UploadPiece(size_t unit, const LoadReader::Taken& taken) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || states_[unit] == State::kDone) return;
  }
  const auto& parts = units_[unit].parts;
  const auto part = std::find_if(parts.begin(), parts.end(), [&](const PlacedUnit::Part& p) {
    return p.tensor == taken.chunk.tensor;
  });
  queue_->Upload(taken.stored, *slots_[unit % kSlots],
                 part->offset + taken.chunk.first_row * taken.chunk.stored_row_bytes());
  queue_->Finish();
  bytes_uploaded_ += taken.stored.size();
}

void PromptUploads::UploadBiases(size_t unit) {
  const PlacedUnit& placed = units_[unit];
  for (size_t i = 0; i < kNumFfnMatrices; ++i) {
    const PlacedUnit::Part& part = placed.parts[i];
    if (!part.has_bias) continue;
    const WeightView& bias =
        weights_.layers[static_cast<size_t>(placed.unit.layer)].Bias(static_cast<FfnMatrix>(i));
    const auto bytes = static_cast<size_t>(part.tensor->decl.rows) * sizeof(float);
    queue_->Upload({bias.data + static_cast<size_t>(placed.unit.expert) * bytes, bytes},
                   *slots_[unit % kSlots], part.bias_offset);
  }
  queue_->Finish();
}

UnitMatrices PromptUploads::Take(const UploadUnit& unit) {
  taken_ = numbers_.at(KeyOf(unit));
  std::unique_lock lock(mutex_);
  for (; next_ < taken_; ++next_) states_[next_] = State::kDone;
  changed_.notify_all();
  changed_.wait(lock, [&] { return error_ != nullptr || states_[taken_] == State::kHere; });
  if (states_[taken_] != State::kHere) std::rethrow_exception(error_);
  lock.unlock();
  UnitMatrices matrices;
  accel::DeviceBuffer* const slot = slots_[taken_ % kSlots].get();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const PlacedUnit::Part& part = units_[taken_].parts[i];
    if (part.tensor == nullptr) continue;
    matrices[i] = {.type = part.tensor->stored->dtype,
                   .matrix = {.weights = slot,
                              .rows = part.tensor->decl.rows,
                              .columns = part.tensor->decl.cols,
                              .begin = static_cast<int64_t>(part.offset)},
                   .bias = part.has_bias ? slot : nullptr,
                   .bias_begin = static_cast<int64_t>(part.bias_offset / sizeof(float))};
  }
  return matrices;
}

void PromptUploads::Done(std::unique_ptr<accel::DeviceEvent> used) {
  const std::lock_guard lock(mutex_);
  states_[taken_] = State::kDone;
  used_[taken_ % kSlots] = std::move(used);
  next_ = taken_ + 1;
  changed_.notify_all();
}

void PromptUploads::End() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

}  // namespace hearth
