// Keys and values on a device, of the layers whose attention's matrices lie there: what they take,
// and how a layer attends there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accel/device_attention.h"
#include "engine/load/model.h"
#include "pass/device/device_weights.h"
#include "plan/matrix_placement.h"

namespace hearth {

// What passes of an engine are, as far as a device must know.
struct DevicePasses {
  int64_t max_tokens = 1;
  KvCodec kv_codec = KvCodec::kF16;
  int64_t kv_tokens = 0;  // that all sessions may have together
  bool predicts = false;  // which neurons are active
};

// Why no device has keys and values of a model; empty: one may.
std::string WhyNoKvOnDevice(const ModelSpec& spec, KvCodec codec);

// What a placement takes for them; no slots where it has none.
accel::DeviceAttentionShape AttentionShapeOf(const ModelSpec& spec,
                                             const MatrixPlacement& placement,
                                             const DevicePasses& passes);

// The device's memory for keys and values of one layer, for so many tokens.
uint64_t DeviceKvBytesOfLayer(const ModelSpec& spec, KvCodec codec, int64_t tokens);

// How each layer attends whose DeviceLayer::attention has a number, by that. Uploads biases, norms
// and sinks. `model` and the device's objects must live as long. Throws what the device does.
std::vector<accel::DeviceAttentionLayer> MakeAttentionLayers(const Model& model,
                                                             const DeviceWeights& device,
                                                             accel::DeviceAttention& attention);

}  // namespace hearth
