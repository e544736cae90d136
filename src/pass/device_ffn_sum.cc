#include "pass/device_ffn_sum.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/elementwise.h"

namespace hearth {
namespace {

size_t SumBytes(const PassWidths& widths) {
  return widths.sums_on_device ? static_cast<size_t>(widths.tokens * widths.hidden) * sizeof(float)
                               : 0;
}

// Rows right after one another in the memory of `room`.
FloatView Packed(const FloatView& room, int64_t rows, int64_t cols) {
  return {room.data, rows, cols, cols};
}

}  // namespace

accel::DeviceFfnWatcher WatchFfn(PassObserver& observer, const SeenFfn& seen) {
  const auto [layer, expert, tokens, ffn, gate_room, up_room] = seen;
  const FloatView gate = Packed(gate_room, std::ssize(tokens), ffn.intermediate_size);
  const FloatView up = Packed(up_room, std::ssize(tokens), ffn.intermediate_size);
  const FloatView factors_of_two = ffn.kind == FfnKind::kGated ? up : gate;
  return {.gate = gate,
          .up = up,
          .on_gate_up =
              [&observer, layer = layer, expert = expert, tokens = tokens, gate, factors_of_two] {
                observer.OnFfnGateUp(layer, expert, tokens, gate, factors_of_two);
              },
          .on_factors = [&observer, layer = layer, expert = expert, tokens = tokens,
                         gate] { observer.OnFfnActivation(layer, expert, tokens, gate); }};
}

DeviceFfnSum::DeviceFfnSum(const PassContext& context, const PassWidths& widths, Budget& budget)
    : context_(context), memory_(budget, "activations", SumBytes(widths)) {
  if (!widths.sums_on_device) return;
  sum_ = {reinterpret_cast<float*>(memory_.data()), widths.tokens, widths.hidden, widths.hidden};
  all_rows_.resize(static_cast<size_t>(widths.tokens));
  std::iota(all_rows_.begin(), all_rows_.end(), 0);
  ones_.assign(all_rows_.size(), 1.0f);
}

uint64_t DeviceFfnSum::ChargedBytes(const PassWidths& widths) {
  return Buffer::ChargedBytes(SumBytes(widths));
}

bool DeviceFfnSum::Has(int64_t layer) const {
  const DeviceLayer& device = context_.device_layer(layer);
  return device.has_experts() || device.has_shared() || context_.is_uploading;
}

bool DeviceFfnSum::HasExpert(int64_t layer, int64_t expert) const {
  return context_.device_layer(layer).HasExpert(expert) ||
         context_.IsUploaded({UnitKind::kExpert, layer, expert});
}

bool DeviceFfnSum::HasShared(int64_t layer) const {
  return context_.device_layer(layer).has_shared() ||
         context_.IsUploaded({UnitKind::kShared, layer});
}

accel::DeviceFfn DeviceFfnSum::Find(const UploadUnit& unit) const {
  const FfnSpec& ffn = context_.layer(unit.layer).ffn;
  const accel::VectorKernels::Activation activation = {ffn.activation, ffn.threshold};
  if (context_.IsUploaded(unit)) {
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
                          std::span<const float> weights, const accel::DeviceFfnWatcher* watcher) {
  context_.device->matrices->AddFfn(Find(unit), tokens, weights, watcher);
  if (context_.IsUploaded(unit)) {
    context_.device->uploads->Done(context_.device->matrices->Mark());
  }
}

std::span<const int32_t> DeviceFfnSum::Listed(std::span<const int64_t> tokens) {
  if (num_launched_ == tokens_.size()) tokens_.emplace_back();
  std::vector<int32_t>& list = tokens_[num_launched_++];
  list.assign(tokens.begin(), tokens.end());
  return list;
}

void DeviceFfnSum::Launch(int64_t layer, const Activations& a, std::span<const ExpertLoad> loads) {
  if (pass_.selector->mode() != FfnMode::kDense) {
    throw Error(ErrorCode::kInternal, "DeviceFfnSum", "lists of neurons of matrices");
  }
  layer_ = layer;
  num_launched_ = 0;
  is_launched_ = true;
  context_.device->matrices->SetLayer(layer);
  context_.device->matrices->BeginSum(a.normed);
  const auto rows = static_cast<size_t>(a.normed.rows);
  if (context_.layer(layer).ffn.num_experts == 0) {
    if (HasExpert(layer, 0)) {
      AddExpert(0, std::span(all_rows_).first(rows), std::span(ones_).first(rows), a);
    }
  } else {
    for (size_t expert = 0; expert < loads.size(); ++expert) {
      if (loads[expert].tokens.empty() || !HasExpert(layer, static_cast<int64_t>(expert))) continue;
      AddExpert(static_cast<int64_t>(expert), loads[expert].tokens, loads[expert].weights, a);
    }
  }
  if (HasShared(layer)) AddShared(a);
  context_.device->matrices->EndSum(sum_.Rows(0, a.normed.rows));
}

void DeviceFfnSum::AddExpert(int64_t expert, std::span<const int64_t> tokens,
                             std::span<const float> weights, const Activations& a) {
  const FfnSpec& ffn = context_.layer(layer_).ffn;
  const UploadUnit unit = {UnitKind::kExpert, layer_, expert};
  PassObserver* const observer = pass_.observer;
  if (observer == nullptr) return AddFfn(unit, Listed(tokens), weights, nullptr);
  const auto count = std::ssize(tokens);
  FloatView input = a.normed;
  if (ffn.num_experts > 0) {
    input = a.gathered.Rows(0, count);
    GatherRows(a.normed, tokens, input);
  }
  observer->OnFfnInput(layer_, expert, tokens, pass_.residual, input);
  const accel::DeviceFfnWatcher watcher =
      WatchFfn(*observer, {layer_, expert, tokens, ffn, a.gate, a.up});
  AddFfn(unit, Listed(tokens), weights, &watcher);
}

// Its weight is sigmoid(w . normed), or 1.
void DeviceFfnSum::AddShared(const Activations& a) {
  const FfnSpec& ffn = context_.layer(layer_).ffn;
  const auto rows = static_cast<size_t>(a.normed.rows);
  shared_weights_.assign(rows, 1.0f);
  if (ffn.shared_gate) {
    ScaleBySigmoid(context_.compute, a.normed,
                   FloatsOf(context_.layer_weights(layer_).shared_router),
                   {shared_weights_.data(), a.normed.rows, 1, 1});
  }
  const UploadUnit unit = {UnitKind::kShared, layer_, 0};
  const std::span<const int32_t> tokens = Listed(std::span(all_rows_).first(rows));
  PassObserver* const observer = pass_.observer;
  if (observer == nullptr) return AddFfn(unit, tokens, shared_weights_, nullptr);
  observer->OnMatrixInput(layer_, MatrixInput::kSharedGateUp, a.normed);
  accel::DeviceFfnWatcher watcher = {
      .gate = Packed(a.shared_gate, a.normed.rows, ffn.shared_intermediate_size),
      .up = Packed(a.shared_up, a.normed.rows, ffn.shared_intermediate_size)};
  watcher.on_gate_up = [] {};
  watcher.on_factors = [&] {
    observer->OnMatrixInput(layer_, MatrixInput::kSharedDown, watcher.gate);
  };
  AddFfn(unit, tokens, shared_weights_, &watcher);
}

void DeviceFfnSum::Merge(FloatView out) {
  accel::DeviceMatrices& matrices = *context_.device->matrices;
  accel::ProcessorSpan wait(matrices.trace(), "wait", layer_, out.rows);
  matrices.Wait();
  wait.End();
  is_launched_ = false;
  accel::ProcessorSpan merge(matrices.trace(), "merge", layer_, out.rows);
  Add(context_.compute, out, sum_.Rows(0, out.rows));
  merge.End();
  context_.seam.After(PassOp::kFfnDown);
}

void DeviceFfnSum::Abandon() noexcept {
  if (is_launched_) context_.device->matrices->Abandon();
  is_launched_ = false;
}

}  // namespace hearth
