// From an execution plan to what an engine does.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_options.h"
#include "plan/execution_plan.h"

namespace hearth {

// What an engine is to do. Throws Error(kInvalidArgument), naming what, where the plan is of
// another file or machine than these, or asks for what contradicts itself.
EngineOptions OptionsOfPlan(const ExecutionPlan& plan, uint64_t model_hash,
                            const std::string& machine_hash);

// Reads a plan of this machine for `model`, both paths. Keeps the calling thread, and those that it
// starts from now on, to the plan's processors: load the engine on it. Throws hearth::Error.
EngineOptions ObeyPlan(const std::string& plan, const std::string& model);

}  // namespace hearth
