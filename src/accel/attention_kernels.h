// Attention over pages of keys and values in a device's memory.
#pragma once

#include <cstdint>
#include <memory>

#include "accel/device.h"
#include "tensor/kv_layout.h"

namespace hearth::accel {

// Pages of one layer, each as the layer's part of a page of the host lies there (KvLayout), and the
// rows of a pass.
struct DevicePagesOfLayer {
  DeviceBuffer* pages = nullptr;  // [slots][kv_heads][KvLayout::head_bytes]
  // int32: row r has position positions[r], and page i of its sequence is in slot
  // slots[begins[r] + i]. Slots are not checked.
  DeviceBuffer* slots = nullptr;
  DeviceBuffer* begins = nullptr;
  DeviceBuffer* positions = nullptr;
};

// How a layer makes scores (model/model_spec.h, AttentionSpec).
struct DeviceScores {
  int64_t heads = 0;   // a multiple of the layout's kv_heads
  int64_t window = 0;  // newest positions that a query sees, its own included; 0: all
  float scale = 1;
  // Queries at position p are multiplied by 1 + temperature * ln(1 + floor(p / period)).
  float temperature = 0;
  int64_t period = 1;
  float softcap = 0;              // 0: scores stay
  DeviceBuffer* sinks = nullptr;  // a number per head; null: there are none
};

// One thread at a time; must not outlive the device. Throw Error(kInternal) where buffers are too
// small and for heads that Takes() refuses.
class AttentionKernels {
 public:
  static constexpr int64_t kMostHeadDim = 256;
  // Work-groups that share the positions of a row where few rows are computed.
  static constexpr int64_t kParts = 16;

  // Keys and values in F16 or F32, heads of at most kMostHeadDim components.
  static bool Takes(const KvLayout& layout) {
    return (layout.codec == KvCodec::kF16 || layout.codec == KvCodec::kF32) &&
           layout.head_dim <= kMostHeadDim;
  }
  // Floats of scratch that Attend needs to compute `rows` rows at a time, each in `parts` parts.
  static int64_t PartialFloats(int64_t heads, int64_t head_dim, int64_t rows, int64_t parts) {
    return rows * parts * heads * (2 + head_dim);
  }

  // Throws what Device::MakeKernel does.
  AttentionKernels(Device& device, const KvLayout& layout);

  // Writes keys and values [rows][kv_heads][head_dim] of rows [0, rows) to their positions.
  void Store(DeviceQueue& queue, const DevicePagesOfLayer& at, DeviceBuffer& keys,
             DeviceBuffer& values, int64_t rows);

  // q and out are [rows][heads][head_dim].
  struct Queries {
    DeviceBuffer* q = nullptr;
    DeviceBuffer* out = nullptr;
    DeviceBuffer* partial = nullptr;  // room for the PartialFloats of at least one row
    int64_t rows = 0;
    int64_t parts = 1;  // work-groups that share a row: 1 or kParts
  };
  // out = softmax(scores) V of rows whose keys and values are there already. A row has the same
  // bits whatever other rows there are.
  void Attend(DeviceQueue& queue, const DevicePagesOfLayer& at, const DeviceScores& scores,
              const Queries& queries);

 private:
  const KvLayout layout_;
  const std::unique_ptr<DeviceKernel> store_kv_, attend_, merge_parts_;
};

}  // namespace hearth::accel
