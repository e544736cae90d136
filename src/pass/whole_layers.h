// Layers of a pass of which everything is on a device: norms, attention with its keys and values,
// and a dense FFN. The residual stream stays there from one to the next, so that the processor only
// sends commands, and stores the keys and values of the layer before.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accel/device_layers.h"
#include "pass/activations.h"
#include "pass/attention_block.h"
#include "pass/ffn_executor.h"
#include "pass/pass_context.h"
#include "pass/pass_rows.h"

namespace hearth {

// One thread at a time. For a pass: Begin; for each layer Run where Has names it, and else Leave
// before anything reads the residual stream on the host; Leave after the last one. After an error
// Abandon.
class WholeLayers {
 public:
  WholeLayers(const PassContext& context, const AttentionBlock& attention)
      : context_(context), attention_(attention) {}

  // Of the calls that follow; after DeviceKv::Begin.
  void Begin(const FfnPass& pass);
  bool Has(int64_t layer) const;

  // a.hidden += what the layer adds, on the device. Throws what the device does, and
  // Error(kCorrupt), Error(kIo) where keys and values cannot be stored.
  void Run(int64_t layer, const PassRows& rows, const Activations& a);
  // a.hidden has the residual stream, and the host's pages all keys and values.
  void Leave(const PassRows& rows, const Activations& a);
  // Waits until the device uses no memory of the pass.
  void Abandon() noexcept;

 private:
  accel::DeviceLayerWatcher WatcherOf(int64_t layer, const Activations& a) const;
  // Waits for the keys and values of the layer that was sent last, and stores them.
  void Store(const PassRows& rows);

  const PassContext& context_;
  const AttentionBlock& attention_;
  FfnPass pass_;
  std::vector<int64_t> rows_;  // 0, 1, 2, ...
  bool is_there_ = false;      // the residual stream is on the device
  // The layer that was sent last, and where its keys and values come to; null: they are stored.
  std::unique_ptr<accel::DeviceEvent> sent_;
  int64_t layer_ = 0;
  FloatView keys_, values_;
};

}  // namespace hearth
