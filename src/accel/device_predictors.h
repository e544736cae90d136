// Predictors of FFNs in a device's memory (P1 §5.1): the device finds out what a token will
// activate, and the host, which gets the logits, makes lists of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "accel/device_matrices.h"
#include "accel/vector_kernels.h"
#include "tensor/view.h"

namespace hearth::accel {

// Of the widest of them.
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
  bool relu = false;    // between the two
};

// One thread at a time. Calls throw what the device does.
class DevicePredictors {
 public:
  // Tokens of one launch, at most.
  static constexpr int64_t kTokensOfLaunch = 32;

  // `layers` are by layer. Buffers are charged to the device's memory as "predictors". `matrices`
  // must outlive it. Throws what Device::MakeBuffer does.
  DevicePredictors(DeviceMatrices& matrices, const DevicePredictorsShape& shape,
                   std::vector<DevicePredictor> layers);
  // What the constructor charges.
  static uint64_t ScratchBytes(const DevicePredictorsShape& shape);

  bool Has(int64_t layer) const { return !At(layer).down.empty(); }
  int64_t neurons(int64_t layer) const { return At(layer).up.matrix.rows; }

  // logits [tokens][neurons] = up * relu?(down * inputs) + bias, of inputs [tokens][hidden];
  // returns when they are in host memory. A token has the same bits whoever is asked about with it.
  // Throws Error(kInternal) for other sizes.
  void Ask(int64_t layer, FloatView inputs, FloatView logits);

  // Since construction, a token and layer at a time.
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
