// The matrices of a model that lie on a device: what they take, and how they get there. Of a packed
// model those that are not its FFNs'.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/device.h"
#include "accel/device_attention.h"
#include "accel/device_layers.h"
#include "accel/device_matrices.h"
#include "accel/device_predictors.h"
#include "engine/load/model.h"
#include "engine/load/placed_attention.h"
#include "engine/load/prompt_uploads.h"
#include "format/gguf.h"
#include "pass/device/device_weights.h"
#include "plan/matrix_placement.h"

namespace hearth {

// Takes matrices out of a plan, so that they are not loaded.
void LeaveToDevice(LoadPlan& plan, const MatrixPlacement& placement);

// Whether FFNs, or experts of them, are on the device or are uploaded to it.
bool HasFfns(const MatrixPlacement& placement);

// Terms of adapters are added on the processor, between the matrices of an FFN: throws
// Error(kUnsupported) where a device computes whole FFNs of every token.
void CheckAdapters(const MatrixPlacement& placement, const ModelSpec& spec);

// A part of a plan's tensor, with its experts by the numbers they are stored by.
struct PlacedTensor {
  const ResidentTensor* tensor = nullptr;
  const ResidentTensor* bias = nullptr;  // that is added on the device; null: none
  std::vector<int32_t> experts;
};

// How a placement lies on a device: `tensors` are the matrices of `shape`, by number. `plan` is
// that of ChooseMatrices, and must live as long.
struct PlacedMatrices {
  accel::DeviceMatricesShape shape;
  accel::DeviceAttentionShape attention;
  accel::DeviceLayersShape whole;
  accel::DevicePredictorsShape predictors;
  std::vector<PlacedTensor> tensors;
  std::vector<DeviceLayer> layers;
  int32_t output = -1;
  uint64_t slot_bytes = 0;  // for uploads

  // Throws Error(kInvalidArgument) for a placement of another model and Error(kUnsupported) for
  // types, and keys and values, without kernels.
  PlacedMatrices(const LoadPlan& plan, const MatrixPlacement& placement,
                 const DevicePasses& passes);

  // As the device's ledger will be.
  std::map<std::string, uint64_t> Ledger() const;
  uint64_t bytes() const { return lasting_bytes() + scratch_bytes() + slot_bytes; }
  // Matrices, keys and values; what kernels work in.
  uint64_t lasting_bytes() const {
    return accel::DeviceMatrices::MatrixBytes(shape) + accel::DeviceAttention::KvBytes(attention);
  }
  uint64_t scratch_bytes() const {
    return accel::DeviceMatrices::ScratchBytes(shape) +
           accel::DeviceAttention::ScratchBytes(attention) +
           accel::DeviceLayers::ScratchBytes(whole) +
           accel::DevicePredictors::ScratchBytes(predictors);
  }
  // Reads all of them and uploads them. Throws Error(kIo), Error(kCorrupt), and what the device
  // does.
  void Fill(const GgufFile& file, accel::DeviceMatrices& device, const ProgressFn& progress) const;

 private:
  void MakeRoomFor(const std::vector<PlacedUnit>& units, const ModelSpec& spec);
};

}  // namespace hearth
