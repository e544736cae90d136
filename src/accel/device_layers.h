// Whole layers on a device: norms, attention, a dense FFN, and the residual stream between them.
// The states of a pass are sent once before the first layer and come back after the last; only
// keys and values come back of every layer, for the host's KV pages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "accel/device.h"
#include "accel/device_attention.h"
#include "accel/device_matrices.h"
#include "accel/vector_kernels.h"
#include "tensor/view.h"

namespace hearth::accel {

// What memory it takes, beside attention and matrices.
struct DeviceLayersShape {
  int64_t layers = 0;         // 0: there are none
  int64_t max_tokens = 1;     // of a pass
  int64_t hidden = 0;         // columns of the residual stream
  int64_t vector_floats = 0;  // of all norms

  bool any() const { return layers > 0; }
};

// A layer. Norms without a weight are left out.
struct DeviceWholeLayer {
  const DeviceAttentionLayer* attention = nullptr;
  DeviceFfn ffn;
  VectorKernels::Norm attention_norm, ffn_norm;    // of what the two read
  VectorKernels::Norm after_attention, after_ffn;  // of what they add to the residual stream,
  float residual_scale = 1;                        // which is then multiplied by this
  bool is_parallel = false;  // both read the residual stream as it is before the layer
};

// Sees what a layer does, in memory of its own, a row per row of the pass.
struct DeviceLayerWatcher {
  FloatView hidden, normed, attended;
  // Called when `normed` has what attention reads, `attended` what its output matrix multiplies,
  // `normed` what the FFN reads and `hidden` the residual stream before it.
  std::function<void()> on_attention_input, on_attended, on_ffn_input;
  DeviceFfnWatcher ffn;
};

// One thread at a time. For a pass, after DeviceAttention::BeginPass and SetAngles: Upload, Run of
// layers, Download; then Upload again for later layers. Host memory that calls name must stay as it
// is until the next Wait of the matrices. Calls throw what the device does.
class DeviceLayers {
 public:
  // Builds the kernels and makes the buffer of the residual stream, charged to the device's memory
  // as "layers". Throws what Device::MakeBuffer does. The two must outlive it.
  DeviceLayers(DeviceMatrices& matrices, DeviceAttention& attention,
               const DeviceLayersShape& shape);
  static uint64_t ScratchBytes(const DeviceLayersShape& shape);

  // A norm's weight or bias, which stays there.
  DeviceBuffer& AddVector(std::span<const float> vector);

  // The residual stream, a row per row of the pass.
  void Upload(FloatView hidden);
  // Sends a layer. Its keys, rotated, and values are in host memory after the next mark. Waits
  // where `watcher` is given.
  void Run(const DeviceWholeLayer& layer, FloatView keys, FloatView values,
           const DeviceLayerWatcher* watcher = nullptr);
  // The residual stream after the layers so far is in `hidden` after the next Wait.
  void Download(FloatView hidden);

  const DeviceLayersShape& shape() const { return shape_; }
  // Tokens times layers so far.
  int64_t tokens_computed() const { return tokens_computed_; }

 private:
  // x = norm(residual stream), shown to the watcher in `seen` where on_normed is not null.
  void Read(const VectorKernels::Norm& norm, DeviceBuffer& x);
  void Show(DeviceBuffer& x, FloatView seen, const std::function<void()>& on_seen);
  // residual stream += scale * norm(x)
  void AddBlock(const VectorKernels::Norm& norm, float scale, DeviceBuffer& x);

  DeviceMatrices& matrices_;
  DeviceAttention& attention_;
  const DeviceLayersShape shape_;
  VectorKernels vectors_;
  std::unique_ptr<DeviceBuffer> hidden_;
  std::vector<std::unique_ptr<DeviceBuffer>> added_;
  int64_t tokens_computed_ = 0;
};

}  // namespace hearth::accel
