// An FFN by single neurons on a device (P1 §5.4), for a few tokens: gates of listed neurons, up of
// those whose gates fire, and the sum of the down rows of those that are active.
#pragma once

#include <cstdint>
#include <memory>

#include "accel/device.h"
#include "tensor/dtype.h"
#include "tensor/op_kinds.h"

namespace hearth::accel {

// Rows of neurons in a buffer, as in bundles (tensor/row_groups.h, or F16 numbers): row i begins
// `first + i * stride` bytes from its start, and the neuron's bias `bias + i * stride`. The buffer
// holds `neurons` rows.
struct DeviceRows {
  DeviceBuffer* buffer = nullptr;
  int64_t first = 0;
  int64_t stride = 0;
  int64_t bias = -1;  // -1: none
  int64_t neurons = 0;
};

// Which neurons each token computes: list[t * list_stride + i], ascending, for i < counts[t].
// list_stride 0: the first list and count hold for all tokens.
struct DeviceLists {
  DeviceBuffer* list = nullptr;    // int32
  DeviceBuffer* counts = nullptr;  // int32
  int64_t list_stride = 0;
  int64_t max_count = 0;  // of all counts
};

// How gates become what down multiplies. Where skips, gates up to `below` and those between `from`
// and `to` are silent: nothing more is read of their neurons (ops/silent_gates.h).
struct DeviceActivation {
  FfnActivation kind = FfnActivation::kRelu;
  float threshold = 0;
  bool skips = false;
  float below = 0, from = 0, to = 0;
};

// Tokens x [tokens][hidden], of floats.
struct DeviceTokens {
  DeviceBuffer* x = nullptr;
  int64_t tokens = 0;
  int64_t hidden = 0;  // a multiple of 32
};

// Kernels for one type of weights. `gates` and `factors` are buffers of floats with a place per
// token and entry of its list, [tokens][max_count]; other places stay as they are. Calls throw
// Error(kInternal) where buffers are too small or hidden is no multiple of 32. Lists are not
// checked: every entry is below `neurons`, every count at most max_count. One thread at a time;
// must not outlive the device.
class NeuronKernels {
 public:
  // F16, Q4_0, Q4_1 and Q8_0 have kernels.
  static bool Has(DType type);

  // A list is cut into this many slices: their down rows are added at the same time, and the sums
  // of slices one after the other.
  static constexpr int64_t kSlices = 16;

  // Throws Error(kUnsupported) for other types, and what Device::MakeKernel does.
  NeuronKernels(Device& device, DType type);

  // gates = gate rows . x + biases.
  void Gates(DeviceQueue& queue, const DeviceRows& rows, const DeviceLists& lists,
             const DeviceTokens& tokens, DeviceBuffer& gates);

  struct Factors {
    const DeviceRows* up = nullptr;  // null: an FFN of two matrices
    DeviceActivation activation;
    DeviceBuffer* gates = nullptr;
    DeviceBuffer* factors = nullptr;  // written
  };
  void MakeFactors(DeviceQueue& queue, const Factors& work, const DeviceLists& lists,
                   const DeviceTokens& tokens);

  struct Down {
    const DeviceRows* rows = nullptr;
    DeviceBuffer* factors = nullptr;
    DeviceBuffer* partial = nullptr;  // scratch, [tokens][kSlices][hidden]
    DeviceBuffer* out = nullptr;      // written, [tokens][hidden]
  };
  // out = sum of factor * down row over the list. Its order depends on the list alone.
  void AddDown(DeviceQueue& queue, const Down& work, const DeviceLists& lists, int64_t tokens,
               int64_t hidden);

 private:
  void CheckRows(const DeviceRows& rows, int64_t hidden) const;

  const DType type_;
  const std::unique_ptr<DeviceKernel> gates_, factors_, down_, merge_;
};

}  // namespace hearth::accel
