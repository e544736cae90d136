#include "pass/whole_layers.h"

#include <numeric>
#include <utility>

#include "pass/device_ffn_sum.h"

namespace hearth {

void WholeLayers::Begin(const FfnPass& pass) {
  pass_ = pass;
  is_there_ = false;
  rows_.resize(static_cast<size_t>(pass.rows));
  std::iota(rows_.begin(), rows_.end(), 0);
}

bool WholeLayers::Has(int64_t layer) const {
  return context_.device_layer(layer).is_whole() && context_.device_kv.Has(layer);
}

accel::DeviceLayerWatcher WholeLayers::WatcherOf(int64_t layer, const Activations& a) const {
  PassObserver& observer = *pass_.observer;
  const FfnSpec& ffn = context_.layer(layer).ffn;
  accel::DeviceLayerWatcher watcher = {
      .hidden = a.hidden, .normed = a.normed, .attended = a.attended};
  watcher.on_attention_input = [&observer, layer, a] {
    observer.OnMatrixInput(layer, MatrixInput::kAttentionQkv, a.normed);
  };
  watcher.on_attended = [&observer, layer, a] {
    observer.OnMatrixInput(layer, MatrixInput::kAttentionOutput, a.attended);
  };
  watcher.on_ffn_input = [this, &observer, layer, a] {
    observer.OnFfnInput(layer, 0, rows_, a.hidden, a.normed);
  };
  watcher.ffn = WatchFfn(observer, {layer, 0, rows_, ffn, a.gate, a.up});
  return watcher;
}

void WholeLayers::Run(int64_t layer, const PassRows& rows, const Activations& a) {
  const DeviceWeights& device = *context_.device;
  device.matrices->SetLayer(layer);
  if (!is_there_) device.whole->Upload(a.hidden);
  is_there_ = true;
  const bool is_other = keys_.data == a.k.data;
  const FloatView keys = is_other ? a.other_k : a.k;
  const FloatView values = is_other ? a.other_v : a.v;
  const accel::DeviceWholeLayer& whole =
      device.whole_layers[static_cast<size_t>(device.layer(layer).whole)];
  if (pass_.observer == nullptr) {
    device.whole->Run(whole, keys, values);
  } else {
    const accel::DeviceLayerWatcher watcher = WatcherOf(layer, a);
    device.whole->Run(whole, keys, values, &watcher);
  }
  std::unique_ptr<accel::DeviceEvent> sent = device.matrices->Mark();
  // While the device computes this layer.
  Store(rows);
  sent_ = std::move(sent);
  layer_ = layer;
  keys_ = keys;
  values_ = values;
  context_.spilled.Skip(layer);
  if (device.matrices->trace() != nullptr) {  // which tells commands apart by layer
    device.matrices->commands().Send();
    device.matrices->Wait();
  }
  context_.seam.After(PassOp::kFfnDown);
}

void WholeLayers::Store(const PassRows& rows) {
  if (sent_ == nullptr) return;
  std::exchange(sent_, nullptr)->Wait();
  attention_.Store(layer_, rows, keys_, values_);
}

void WholeLayers::Leave(const PassRows& rows, const Activations& a) {
  if (!is_there_) return;
  context_.device->whole->Download(a.hidden);
  Store(rows);
  context_.device->matrices->Wait();
  is_there_ = false;
}

void WholeLayers::Abandon() noexcept {
  if (is_there_) context_.device->matrices->Abandon();
  is_there_ = false;
  sent_.reset();
}

}  // namespace hearth
