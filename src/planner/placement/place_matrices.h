// Which matrices of a model that is not packed go to a device: what every token needs first, then
// experts by PowerInfer's program (P1 §6), each of which stands for a batch of neurons there.
#pragma once

#include "engine/load/engine_options.h"
#include "engine/load/model.h"
#include "format/gguf.h"
#include "planner/cost/access_record.h"
#include "planner/cost/matrix_share.h"
#include "planner/placement/placement_model.h"

namespace hearth {

// Seconds that a token waits for matrices of a placement beside which nothing is computed: those of
// attention and the output, with what sending and fetching takes.
double DenseSeconds(const LoadPlan& plan, const MatrixPlacement& placement,
                    const PlacementMachine& machine);

// The hottest experts of each layer by what tokens of `record` choose; where that is null, all are
// chosen equally often. The scratch of the device's kernels is taken off machine.device_bytes;
// machine.host_bytes is not looked at. Throws Error(kOutOfBudget), naming the memory that would do,
// where nothing fits, and Error(kUnsupported) for a packed file and for types without kernels.
MatrixShare PlaceMatrices(const GgufFile& file, const AccessRecord* record,
                          const PlacementMachine& machine, const EngineOptions& engine);

}  // namespace hearth
