// Which matrices of a model fit on a device.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/load/model.h"
#include "engine/load/placed_attention.h"
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
  // MatrixPlacement::kv_tokens. If it is not set, the device gets the keys and values of all
  // sessions' tokens, but of no more than fit into a quarter of the room; and none if it has no
  // kernels for them.
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

}  // namespace hearth
