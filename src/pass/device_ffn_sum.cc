#include "pass/device_ffn_sum.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ops/elementwise.h"

namespace hearth {
namespace {

size_t BytesOf(const PassWidths& widths) {
  return widths.sums_on_device ? static_cast<size_t>(widths.tokens * widths.hidden) * sizeof(float)
                               : 0;
}

}  // namespace

DeviceFfnSum::DeviceFfnSum(const PassContext& context, const PassWidths& widths, Budget& budget)
    : context_(context), memory_(budget, "activations", BytesOf(widths)) {
  if (!widths.sums_on_device) return;
  sum_ = {reinterpret_cast<float*>(memory_.data()), widths.tokens, widths.hidden, widths.hidden};
  all_rows_.resize(static_cast<size_t>(widths.tokens));
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  ones_.assign(all_rows_.size(), 1.0f);
}

uint64_t DeviceFfnSum::ChargedBytes(const PassWidths& widths) {
  return Buffer::ChargedBytes(BytesOf(widths));
}

bool DeviceFfnSum::Has(int64_t layer) const {
  const DeviceLayer& device = context_.device_layer(layer);
  return device.has_experts() || device.has_shared() || context_.is_uploading;
}

bool DeviceFfnSum::IsUploaded(const UploadUnit& unit) const {
  return context_.is_uploading && context_.device->uploads->Has(unit);
}

bool DeviceFfnSum::HasExpert(int64_t layer, int64_t expert) const {
  return context_.device_layer(layer).HasExpert(expert) ||
         IsUploaded({UnitKind::kExpert, layer, expert});
}

bool DeviceFfnSum::HasShared(int64_t layer) const {
  return context_.device_layer(layer).has_shared() || IsUploaded({UnitKind::kShared, layer});
}

accel::DeviceFfn DeviceFfnSum::Find(const UploadUnit& unit) const {
  const FfnSpec& ffn = context_.layer(unit.layer).ffn;
  const accel::VectorKernels::Activation activation = {ffn.activation, ffn.threshold};
  if (IsUploaded(unit)) {
    const UnitMatrices at = context_.device->uploads->Take(unit);
    return {at[0], at[1], at[2], activation};
  }
  const DeviceLayer& device = context_.device_layer(unit.layer);
  const accel::DeviceMatrices& matrices = *context_.device->matrices;
  if (unit.kind == UnitKind::kShared) {
    return {matrices.At(device.shared_gate), matrices.At(device.shared_up),
            matrices.At(device.shared_down), activation};
  }
  const int32_t place = device.places[static_cast<size_t>(unit.expert)];
  return {matrices.At(device.gate, place), matrices.At(device.up, place),
          matrices.At(device.down, place), activation};
}

void DeviceFfnSum::AddFfn(const UploadUnit& unit, std::span<const int32_t> tokens,
                          std::span<const float> weights, const accel::DeviceFfnSeen* seen) {
  context_.device->matrices->AddFfn(Find(unit), tokens, weights, seen);
  if (IsUploaded(unit)) context_.device->uploads->Done(context_.device->matrices->Mark());
}

double DeviceFfnSum::Now() const {
  return context_.device->matrices->trace() == nullptr ? 0 : accel::DeviceTrace::Now();
}

void DeviceFfnSum::Trace(const char* what, double begin_seconds) const {
  accel::DeviceTrace* const trace = context_.device->matrices->trace();
  if (trace == nullptr) return;
  trace->Add({what, accel::TraceSide::kProcessor, layer_, normed_.rows, begin_seconds, Now()});
}

void DeviceFfnSum::Launch(int64_t layer, FloatView normed, std::span<const ExpertLoad> loads) {
  if (pass_.selector->mode() != FfnMode::kDense) {
    throw Error(ErrorCode::kInternal, "DeviceFfnSum", "lists of neurons of matrices");
  }
  layer_ = layer;
  normed_ = normed;
  num_launched_ = 0;
  is_launched_ = true;
  context_.device->matrices->SetLayer(layer);
  context_.device->matrices->BeginSum(normed);
  const auto rows = static_cast<size_t>(normed.rows);
  if (context_.layer(layer).ffn.num_experts == 0) {
    if (HasExpert(layer, 0)) {
      AddExpert(0, std::span(all_rows_).first(rows), std::span(ones_).first(rows));
    }
  } else {
    for (size_t expert = 0; expert < loads.size(); ++expert) {
      if (loads[expert].tokens.empty() || !HasExpert(layer, static_cast<int64_t>(expert))) continue;
      AddExpert(static_cast<int64_t>(expert), loads[expert].tokens, loads[expert].weights);
    }
  }
  if (HasShared(layer)) AddShared();
  context_.device->matrices->EndSum(sum_.Rows(0, normed.rows));
}

accel::DeviceFfnSeen DeviceFfnSum::SeenOf(int64_t tokens, int64_t neurons) {
  const auto numbers = static_cast<size_t>(tokens * neurons);
  seen_.resize(3 * numbers);
  return {.gate = {seen_.data(), tokens, neurons, neurons},
          .up = {seen_.data() + numbers, tokens, neurons, neurons},
          .factors = {seen_.data() + 2 * numbers, tokens, neurons, neurons}};
}

void DeviceFfnSum::AddExpert(int64_t expert, std::span<const int64_t> tokens,
                             std::span<const float> weights) {
  const FfnSpec& ffn = context_.layer(layer_).ffn;
  if (num_launched_ == tokens_.size()) tokens_.emplace_back();
  std::vector<int32_t>& list = tokens_[num_launched_++];
  list.assign(tokens.begin(), tokens.end());
  const UploadUnit unit = {UnitKind::kExpert, layer_, expert};
  PassObserver* const observer = pass_.observer;
  if (observer == nullptr) return AddFfn(unit, list, weights, nullptr);
  const auto count = std::ssize(tokens);
  gathered_.resize(static_cast<size_t>(count * normed_.cols));
  const FloatView input = {gathered_.data(), count, normed_.cols, normed_.cols};
  GatherRows(normed_, tokens, input);
  observer->OnFfnInput(layer_, expert, tokens, pass_.residual, input);
  const accel::DeviceFfnSeen seen = SeenOf(count, ffn.intermediate_size);
  AddFfn(unit, list, weights, &seen);
  observer->OnFfnGateUp(layer_, expert, tokens, seen.gate,
                        ffn.kind == FfnKind::kGated ? seen.up : seen.gate);
  observer->OnFfnActivation(layer_, expert, tokens, seen.factors);
}

// Its weight is sigmoid(w . normed), or 1.
void DeviceFfnSum::AddShared() {
  const FfnSpec& ffn = context_.layer(layer_).ffn;
  const auto rows = static_cast<size_t>(normed_.rows);
  shared_weights_.assign(rows, 1.0f);
  if (ffn.shared_gate) {
    ScaleBySigmoid(context_.compute, normed_,
                   FloatsOf(context_.layer_weights(layer_).shared_router),
                   {shared_weights_.data(), normed_.rows, 1, 1});
  }
  if (num_launched_ == tokens_.size()) tokens_.emplace_back();
  std::vector<int32_t>& list = tokens_[num_launched_++];
  list.assign(all_rows_.begin(), all_rows_.begin() + normed_.rows);
  const UploadUnit unit = {UnitKind::kShared, layer_, 0};
  if (pass_.observer == nullptr) return AddFfn(unit, list, shared_weights_, nullptr);
  pass_.observer->OnMatrixInput(layer_, MatrixInput::kSharedGateUp, normed_);
  const accel::DeviceFfnSeen seen = SeenOf(normed_.rows, ffn.shared_intermediate_size);
  AddFfn(unit, list, shared_weights_, &seen);
  pass_.observer->OnMatrixInput(layer_, MatrixInput::kSharedDown, seen.factors);
}

void DeviceFfnSum::Merge(FloatView out) {
  const double waits = Now();
  context_.device->matrices->Wait();
  is_launched_ = false;
  Trace("wait", waits);
  const double merges = Now();
  Add(context_.compute, out, sum_.Rows(0, out.rows));
  Trace("merge", merges);
  context_.seam.After(PassOp::kFfnDown);
}

void DeviceFfnSum::Abandon() noexcept {
  if (is_launched_) context_.device->matrices->Abandon();
  is_launched_ = false;
}

}  // namespace hearth
