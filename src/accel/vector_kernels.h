// Norms, rotary embeddings, softmax, activations and sums on a device. All matrices of floats are
// row after row. Throw Error(kInternal) where buffers are too small.
#pragma once

#include <cstdint>
#include <memory>

#include "accel/device.h"
#include "tensor/op_kinds.h"

namespace hearth::accel {

// One thread at a time; must not outlive the device.
class VectorKernels {
 public:
  // Throws what Device::MakeKernel does.
  explicit VectorKernels(Device& device);

  // x [rows][columns].
  struct Rows {
    DeviceBuffer* x = nullptr;
    int64_t rows = 0;
    int64_t columns = 0;
  };
  // out = x / sqrt(mean(x^2) + eps) * weight, row by row; out may be x.
  void RmsNorm(DeviceQueue& queue, const Rows& rows, DeviceBuffer& weight, float eps,
               DeviceBuffer& out);
  // A norm before or after a block: out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias
  // where there is a bias, and else as RmsNorm.
  struct Norm {
    DeviceBuffer* weight = nullptr;
    DeviceBuffer* bias = nullptr;
    float epsilon = 0;
  };
  void Normalize(DeviceQueue& queue, const Rows& rows, const Norm& norm, DeviceBuffer& out);
  // Row by row, in place. Entries of -inf become 0; each row has a finite one.
  void Softmax(DeviceQueue& queue, const Rows& rows);

  // x [tokens][heads][head_dim], whose first 2 * pairs components are rotated by the angles of
  // their token.
  struct Heads {
    DeviceBuffer* x = nullptr;
    int64_t tokens = 0;
    int64_t heads = 0;
    int64_t head_dim = 0;
  };
  struct Angles {
    DeviceBuffer* cosines = nullptr;  // [tokens][pairs]
    DeviceBuffer* sines = nullptr;
    int64_t pairs = 0;
    RopeLayout layout = RopeLayout::kAdjacent;
  };
  void Rope(DeviceQueue& queue, const Heads& heads, const Angles& angles);

  struct Activation {
    FfnActivation kind = FfnActivation::kSilu;
    float threshold = 0;
  };
  // out = activation(gate, up) of `count` numbers each; out may be gate or up.
  void Activate(DeviceQueue& queue, const Activation& activation, DeviceBuffer& gate,
                DeviceBuffer& up, int64_t count, DeviceBuffer& out);
  // The same with an up of ones, for FFNs of two matrices; out may be gate.
  void ActivateAlone(DeviceQueue& queue, const Activation& activation, DeviceBuffer& gate,
                     int64_t count, DeviceBuffer& out);

  // `count` zeros.
  void Clear(DeviceQueue& queue, DeviceBuffer& x, int64_t count);

  // Numbers of rows, int32; they are not checked.
  struct RowList {
    DeviceBuffer* rows = nullptr;
    int64_t count = 0;
  };
  // out[i] = x[list[i]], of so many columns; out is not x.
  void GatherRows(DeviceQueue& queue, DeviceBuffer& x, const RowList& list, int64_t columns,
                  DeviceBuffer& out);
  // out[list[i]] += weights[i] * x[i]; no row is listed twice.
  void ScatterAddRows(DeviceQueue& queue, DeviceBuffer& x, const RowList& list,
                      DeviceBuffer& weights, int64_t columns, DeviceBuffer& out);
  // x[i] += row, which begins at number `begin` of its buffer.
  void AddToRows(DeviceQueue& queue, DeviceBuffer& row, int64_t begin, const Rows& x);

  // out += scale * a, of `count` numbers each.
  void Add(DeviceQueue& queue, DeviceBuffer& a, int64_t count, DeviceBuffer& out, float scale = 1);

 private:
  const std::unique_ptr<DeviceKernel> rms_norm_, layer_norm_, softmax_, rope_;
  const std::unique_ptr<DeviceKernel> activate_, activate_alone_, add_;
  const std::unique_ptr<DeviceKernel> gather_rows_, scatter_add_rows_, add_to_rows_, clear_;
};

}  // namespace hearth::accel
