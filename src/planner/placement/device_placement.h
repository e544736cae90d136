// What of a packed model goes to a device that is to run it: P1's program under three budgets at
// once, those of the device, of the host and of flash, which holds all.
#pragma once

#include "engine/load/engine_options.h"
#include "format/gguf.h"
#include "planner/cost/device_share.h"
#include "planner/placement/placement_model.h"
#include "sparsity/profile.h"

namespace hearth {

struct DevicePlacement {
  PlacedModel placed;
  DeviceShare share;
  // The host's memory has no room for the others: they are streamed, and every layer has the same
  // number of neurons on the device.
  bool is_streamed = false;
};

// Takes P1's best placement where the host's memory (engine.memory_bytes, beside
// engine.program_bytes and all else that the engine needs) has room for the other neurons, and the
// best uniform one else (PlacementForm::kUniform). Attention, with its keys and values, predictors
// and the output matrix go to the device first, as every token reads all of them, unless no neuron
// would follow; where the others are streamed, predictors stay on the host. The scratch of the
// device's kernels is taken off machine.device_bytes; machine.host_bytes is not looked at.
// Rates come from `profile`, or from the file where that is null. Throws Error(kOutOfBudget),
// naming the constraint, where no neuron goes to the device, and as DevicePart and PlaceModel do.
DevicePlacement PlaceOnDevice(const GgufFile& file, const ModelProfile* profile,
                              const PlacementMachine& machine, const EngineOptions& engine);

}  // namespace hearth
