// The matrices of a model that lie on a device: which ones fit, what they take, and how they get
// there. Of a packed model those that are not its FFNs'.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accel/device.h"
#include "accel/device_attention.h"
#include "accel/device_matrices.h"
#include "accel/device_predictors.h"
#include "engine/load/model.h"
#include "engine/load/placed_attention.h"
#include "engine/load/prompt_uploads.h"
#include "format/gguf.h"
#include "pass/device/device_weights.h"
#include "plan/matrix_placement.h"

namespace hearth {

// What a device has room for.
struct DeviceRoom {
  uint64_t bytes = 0;
  uint64_t max_buffer_bytes = 0;
};

// What is asked for, for experiments; nothing: as many as fit.
struct MatrixCounts {
  std::optional<int64_t> layers;   // whose attention, shared and dense FFNs are on the device
  std::optional<int64_t> experts;  // of each mixture
  bool leaves_experts = false;     // as many as fit, but no expert of a mixture

  bool any() const { return layers || experts; }
};

struct MatrixWishes {
  MatrixCounts counts;
  int64_t upload_tokens = 0;  // as the placement will have it; slots are taken off the room first
  // As the placement will have it. Nothing: those of all sessions, as far as all layers' keys and
  // values take at most a quarter of the room; none where the model's have no kernels.
  std::optional<int64_t> kv_tokens;
};

// The matrices that fit, in the order of what a byte saves for each token: FFNs of dense layers and
// those beside experts, attention with its keys and values, predictors that passes ask, the output
// matrix, then experts, of all layers as many; of a packed file no FFNs and experts, and nothing
// where nothing fits. `plan` is as before LeaveToDevice. Throws Error(kOutOfBudget), naming the
// memory that would do, where nothing or less than was asked for fits, Error(kInvalidArgument) for
// more than the model has, Error(kUnsupported) for what devices have no kernels for.
MatrixPlacement ChooseMatrices(const LoadPlan& plan, const DevicePasses& passes,
                               const DeviceRoom& room, const MatrixWishes& wishes);

// Takes them out of a plan, so that they are not loaded.
void LeaveToDevice(LoadPlan& plan, const MatrixPlacement& placement);

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
           accel::DevicePredictors::ScratchBytes(predictors);
  }
  // Reads all of them and uploads them. Throws Error(kIo), Error(kCorrupt), and what the device
  // does.
  void Fill(const GgufFile& file, accel::DeviceMatrices& device, const ProgressFn& progress) const;

 private:
  void MakeRoomFor(const std::vector<PlacedUnit>& units, const ModelSpec& spec);
};

}  // namespace hearth
