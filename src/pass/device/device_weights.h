// Where the matrices of a model lie in a device's memory: numbers in accel::DeviceMatrices, -1
// where a matrix is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "accel/device_attention.h"
#include "accel/device_layers.h"
#include "accel/device_matrices.h"
#include "pass/device/device_pages.h"
#include "pass/device/uploads.h"

namespace hearth {

struct DeviceLayer {
  int32_t q = -1, k = -1, v = -1, attention_output = -1;
  int32_t attention = -1;  // among those that have keys and values there; -1: it has none
  int32_t gate = -1, up = -1, down = -1;  // of its FFN or its experts
  std::vector<int32_t> places;            // by expert, which of these it is; -1: it is not there
  int32_t shared_gate = -1, shared_up = -1, shared_down = -1;
  int32_t predictor_down = -1, predictor_up = -1;
  int32_t whole = -1;  // among those of which everything is there; -1: something is on the host

  bool has_attention() const { return q >= 0; }
  bool is_whole() const { return whole >= 0; }
  bool attends() const { return attention >= 0; }
  bool has_shared() const { return shared_down >= 0; }
  bool has_experts() const { return down >= 0; }
  bool HasExpert(int64_t expert) const {
    return has_experts() && places[static_cast<size_t>(expert)] >= 0;
  }
};

struct DeviceWeights {
  accel::DeviceMatrices* matrices = nullptr;
  std::vector<DeviceLayer> layers;
  int32_t output = -1;
  Uploads* uploads = nullptr;  // null: prompts are computed where matrices lie
  // Keys and values there, with a number for each layer that has some; null: there are none.
  accel::DeviceAttention* attention = nullptr;
  std::vector<accel::DeviceAttentionLayer> attention_layers;
  DevicePages* kv_pages = nullptr;
  // Layers that are there as a whole; null: there are none.
  accel::DeviceLayers* whole = nullptr;
  std::vector<accel::DeviceWholeLayer> whole_layers;
  std::span<std::byte> kv_staging;  // a layer's part of a page

  const DeviceLayer& layer(int64_t index) const { return layers[static_cast<size_t>(index)]; }
};

}  // namespace hearth
