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
  return device.has_experts() || device.has_shared();
}

double DeviceFfnSum::Now() const {
  return context_.device->matrices->trace() == nullptr ? 0 : accel::DeviceTrace::Now();
}

void DeviceFfnSum::Trace(const char* what, double begin_seconds) const {
  accel::DeviceTrace* const trace = context_.device->matrices->trace();
  if (trace == nullptr) return;
  trace->Add({what, accel::TraceSide::kProcessor, layer_, normed_.rows, begin_seconds, Now()});
}

accel::VectorKernels::Activation DeviceFfnSum::ActivationOf(int64_t layer) const {
  const FfnSpec& ffn = context_.layer(layer).ffn;
  return {ffn.activation, ffn.threshold};
}

void DeviceFfnSum::Launch(int64_t layer, FloatView normed, std::span<const ExpertLoad> loads) {
  if (pass_.selector->mode() != FfnMode::kDense) {
    throw Error(ErrorCode::kInternal, "DeviceFfnSum", "lists of neurons of matrices");
  }
  const DeviceLayer& device = context_.device_layer(layer);
  layer_ = layer;
  normed_ = normed;
  num_launched_ = 0;
  is_launched_ = true;
  context_.device->matrices->SetLayer(layer);
  context_.device->matrices->BeginSum(normed);
  const auto rows = static_cast<size_t>(normed.rows);
  if (context_.layer(layer).ffn.num_experts == 0) {
    if (device.has_experts()) {
      AddExpert(0, std::span(all_rows_).first(rows), std::span(ones_).first(rows));
    }
  } else {
    for (size_t expert = 0; expert < loads.size(); ++expert) {
      if (loads[expert].tokens.empty() || !device.HasExpert(static_cast<int64_t>(expert))) continue;
      AddExpert(static_cast<int64_t>(expert), loads[expert].tokens, loads[expert].weights);
    }
  }
  if (device.has_shared()) AddShared();
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
  const DeviceLayer& device = context_.device_layer(layer_);
  const FfnSpec& ffn = context_.layer(layer_).ffn;
  if (num_launched_ == tokens_.size()) tokens_.emplace_back();
  std::vector<int32_t>& list = tokens_[num_launched_++];
  list.assign(tokens.begin(), tokens.end());
  const accel::DeviceFfn matrices = {device.gate, device.up, device.down,
                                     device.places[static_cast<size_t>(expert)],
                                     ActivationOf(layer_)};
  PassObserver* const observer = pass_.observer;
  if (observer == nullptr) {
    return context_.device->matrices->AddFfn(matrices, list, weights);
  }
  const auto count = std::ssize(tokens);
  gathered_.resize(static_cast<size_t>(count * normed_.cols));
  const FloatView input = {gathered_.data(), count, normed_.cols, normed_.cols};
  GatherRows(normed_, tokens, input);
  observer->OnFfnInput(layer_, expert, tokens, pass_.residual, input);
  const accel::DeviceFfnSeen seen = SeenOf(count, ffn.intermediate_size);
  context_.device->matrices->AddFfn(matrices, list, weights, &seen);
  observer->OnFfnGateUp(layer_, expert, tokens, seen.gate,
                        ffn.kind == FfnKind::kGated ? seen.up : seen.gate);
  observer->OnFfnActivation(layer_, expert, tokens, seen.factors);
}

// Its weight is sigmoid(w . normed), or 1.
void DeviceFfnSum::AddShared() {
  const DeviceLayer& device = context_.device_layer(layer_);
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
  const accel::DeviceFfn matrices = {device.shared_gate, device.shared_up, device.shared_down, 0,
                                     ActivationOf(layer_)};
  if (pass_.observer == nullptr) {
    return context_.device->matrices->AddFfn(matrices, list, shared_weights_);
  }
  pass_.observer->OnMatrixInput(layer_, MatrixInput::kSharedGateUp, normed_);
  const accel::DeviceFfnSeen seen = SeenOf(normed_.rows, ffn.shared_intermediate_size);
  context_.device->matrices->AddFfn(matrices, list, shared_weights_, &seen);
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
