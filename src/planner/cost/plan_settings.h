// What a planner tries for a model: sets of processors, and ways of reading (P2 §5.1).
#pragma once

#include <vector>

#include "engine/load/engine_plan.h"
#include "planner/cost/cost_model.h"
#include "planner/doctor/hardware.h"

namespace hearth {

// How a model is read that does not fit. None for a mixture without a record of what its tokens ask
// for: that is only asked to say what less memory would do.
std::vector<IoStrategy> StrategiesOf(const EnginePlan& plan, bool has_accesses);

// By number of threads, the fastest of the allowed processors.
std::vector<std::vector<int>> CoreSets(const HardwareProfile& hardware,
                                       const std::vector<int>& allowed);

}  // namespace hearth
