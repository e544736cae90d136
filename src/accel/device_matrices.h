// Weight matrices of a model that is not packed in a device's memory, and what they make of tokens:
// products, and FFNs (of dense layers, or experts) whose results are added up there, so that a
// layer sends its tokens once and gets one sum back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "accel/device.h"
#include "accel/device_commands.h"
#include "accel/matrix_kernels.h"
#include "accel/vector_kernels.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace hearth::accel {

// Matrices of one shape, [count][rows][columns], as they lie in a GGUF file: those of the experts
// of a layer, or one.
struct DeviceMatrixShape {
  DType type = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t count = 1;
  bool has_bias = false;  // a float for each row

  uint64_t bytes_of_one() const {
    return static_cast<uint64_t>(rows) * RowBytes(type, static_cast<size_t>(columns));
  }
  uint64_t bytes() const {
    const uint64_t bias = has_bias ? static_cast<uint64_t>(rows) * sizeof(float) : 0;
    return static_cast<uint64_t>(count) * (bytes_of_one() + bias);
  }
};

struct DeviceMatricesShape {
  std::vector<DeviceMatrixShape> matrices;  // that lie there
  // Others that are multiplied there, so that scratch has room: of each only sizes are looked at.
  std::vector<DeviceMatrixShape> visitors;
  int64_t hidden = 0;      // columns of what FFNs are given and make; 0: there are none
  int64_t max_tokens = 1;  // of a pass
};

// A matrix somewhere in the device's memory.
struct DeviceMatrixAt {
  DType type = DType::kF32;
  DeviceMatrix matrix;
  DeviceBuffer* bias = nullptr;  // a float for each row, from number bias_begin on; null: none
  int64_t bias_begin = 0;

  bool empty() const { return matrix.weights == nullptr; }
};

struct DeviceFfn {
  DeviceMatrixAt gate;  // empty: an FFN of two matrices
  DeviceMatrixAt up, down;
  VectorKernels::Activation activation;
};

// Sees what an FFN does, in memory of its own, [tokens][neurons] each.
struct DeviceFfnWatcher {
  FloatView gate, up;
  // Called when gate and up have what the two matrices make (of two matrices, gate what up makes),
  // and when gate has what down multiplies.
  std::function<void()> on_gate_up, on_factors;
};

struct DeviceProduct {
  DeviceMatrixAt matrix;
  FloatView out;  // [tokens][rows]; rows of the view may lie apart
};

// One thread at a time. Host memory that calls name must stay as it is until the next Wait. Calls
// throw what the device does.
class DeviceMatrices {
 public:
  // Builds the kernels and makes all buffers, charged to the device's memory as "matrices" and
  // "scratch". Throws Error(kUnsupported) for types without kernels, and what Device::MakeBuffer
  // does. The device must outlive it.
  DeviceMatrices(Device& device, DeviceMatricesShape shape);
  static uint64_t MatrixBytes(const DeviceMatricesShape& shape);
  static uint64_t ScratchBytes(const DeviceMatricesShape& shape);

  // Number `index` of a shape's matrices; an empty one for number -1.
  DeviceMatrixAt At(int32_t matrix, int64_t index = 0) const;

  // Uploads bytes of a matrix, `offset` bytes from the first one's begin; and the biases of one.
  // Return when that is done.
  void Fill(int32_t matrix, uint64_t offset, std::span<const std::byte> bytes);
  void FillBias(int32_t matrix, int64_t index, std::span<const float> bias);

  // How later calls multiply; one way gives a token the same bits whoever else is in the pass.
  void SetWay(MatmulWay way) { way_ = way; }

  // Sends x [tokens][columns] and what is to be made of it: x * matrix^T + bias, in out after the
  // next Wait. Matrices of other types than the shape's are compiled for at their first product.
  void Multiply(FloatView x, std::span<const DeviceProduct> products);

  // Computes out = x * matrix^T + bias for `tokens` rows, in the way that is set if none is given.
  // Both buffers are the caller's. The command is sent together with those that follow.
  void Launch(const DeviceMatrixAt& at, DeviceBuffer& x, int64_t tokens, DeviceBuffer& out,
              std::optional<MatmulWay> way = {});

  // Computes an FFN of `tokens` rows of x, at most max_tokens, and returns where its result is:
  // there until the next product. x is states() or the caller's. Commands are sent together with
  // those that follow. Waits where `watcher` is given.
  DeviceBuffer& RunFfn(const DeviceFfn& ffn, DeviceBuffer& x, int64_t tokens,
                       const DeviceFfnWatcher* watcher = nullptr);
  // Room for [max_tokens][hidden], which Multiply and BeginSum use too.
  DeviceBuffer& states() { return *x_; }

  // Sends x [tokens][hidden], at most max_tokens. FFNs up to EndSum are of these tokens.
  void BeginSum(FloatView x);
  // sum[tokens[i]] += weights[i] * ffn(x[tokens[i]]); tokens ascend. Waits where `watcher` is
  // given.
  void AddFfn(const DeviceFfn& ffn, std::span<const int32_t> tokens, std::span<const float> weights,
              const DeviceFfnWatcher* watcher = nullptr);
  // The sum will be in out, which is like x, after the next Wait.
  void EndSum(FloatView out);

  // Where all of this is sent; others may send there too.
  DeviceCommands& commands() { return commands_; }

  // A point after all that was sent so far.
  std::unique_ptr<DeviceEvent> Mark() { return commands_.queue().Mark(); }
  // Returns when all that was sent is done and in host memory.
  void Wait() { commands_.Wait(); }
  // The same after an error of somebody else, so that host memory is free again.
  void Abandon() noexcept;

  // See DeviceCommands.
  void Trace(DeviceTrace& trace) { commands_.Trace(trace); }
  DeviceTrace* trace() const { return commands_.trace(); }
  void SetLayer(int64_t layer) { commands_.SetLayer(layer); }

  const DeviceMatricesShape& shape() const { return shape_; }
  Device& device() const { return device_; }
  // Products of a token with a matrix so far, over all matrices.
  int64_t products_computed() const { return products_computed_; }

 private:
  struct Scratch;  // sizes of the buffers below
  // How many tokens of these products there is room for at once.
  int64_t TokensAtOnce(std::span<const DeviceProduct> products) const;

  Device& device_;
  const DeviceMatricesShape shape_;
  std::map<DType, MatrixKernels> kernels_;
  VectorKernels vectors_;
  std::vector<std::unique_ptr<DeviceBuffer>> weights_, biases_;  // by matrix; null: none
  std::unique_ptr<DeviceBuffer> x_, gathered_, gate_, up_, out_, sum_, rows_, row_weights_;
  int64_t out_floats_ = 0;
  DeviceCommands commands_;  // after the buffers: none is left before they are destroyed
  MatmulWay way_ = MatmulWay::kByToken;
  int64_t tokens_of_sum_ = 0;
  int64_t products_computed_ = 0;
};

}  // namespace hearth::accel
