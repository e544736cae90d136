// Predictors of FFNs in a device's memory (P1 §5.1). The device computes a logit for each neuron;
// the host turns the logits into lists of active neurons.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accel/device_matrices.h"
#include "accel/vector_kernels.h"
#include "tensor/view.h"

namespace hearth::accel {

// Sizes of the widest predictor.
struct DevicePredictorsShape {
  int64_t hidden = 0;
  int64_t rank = 0;
  int64_t neurons = 0;
  int64_t max_tokens = 1;  // of one launch

  bool any() const { return rank > 0; }
};

struct DevicePredictor {
  DeviceMatrixAt down;  // [rank][hidden]; empty: it is not on the device
  DeviceMatrixAt up;    // [neurons][rank], with its biases
  bool relu = false;    // applied to what `down` makes
};

// One thread at a time. Calls throw what the device does.
class DevicePredictors {
 public:
  // The most tokens of one launch.
  static constexpr int64_t kTokensOfLaunch = 32;

  // `layers` has an entry for each layer of the model. Buffers are charged to the device's memory
  // as "predictors". `matrices` must outlive it. Throws what Device::MakeBuffer does.
  DevicePredictors(DeviceMatrices& matrices, const DevicePredictorsShape& shape,
                   std::vector<DevicePredictor> layers);
  // What the constructor charges.
  static uint64_t ScratchBytes(const DevicePredictorsShape& shape);

  bool Has(int64_t layer) const { return !At(layer).down.empty(); }
  int64_t neurons(int64_t layer) const { return At(layer).up.matrix.rows; }

  // Computes logits [tokens][neurons] = up * relu?(down * inputs) + bias from inputs
  // [tokens][hidden], and returns when the logits are in host memory. The logits of a token do not
  // depend on which other tokens are in the call. Throws Error(kInternal) for other sizes.
  void Ask(int64_t layer, FloatView inputs, FloatView logits);

  // Since construction; each layer counts a token once.
  int64_t tokens_asked() const { return tokens_asked_; }

 private:
  const DevicePredictor& At(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }

  DeviceMatrices& matrices_;
  const DevicePredictorsShape shape_;
  const std::vector<DevicePredictor> layers_;
  VectorKernels vectors_;
  std::unique_ptr<DeviceBuffer> inputs_, inner_, logits_;
  int64_t tokens_asked_ = 0;
};

}  // namespace hearth::accel
