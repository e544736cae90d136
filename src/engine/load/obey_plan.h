// From an execution plan to what an engine does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/load/engine_options.h"
#include "model/given_activation.h"
#include "plan/execution_plan.h"

namespace hearth {

// What an engine is to do. Throws Error(kInvalidArgument), naming what, where the plan is of
// another file or machine than these, or asks for what contradicts itself. Of a device it says what
// lies there, not which one it is.
EngineOptions OptionsOfPlan(const ExecutionPlan& plan, uint64_t model_hash,
                            const std::string& machine_hash);

// Makes room for requests that are computed together: for their KV pages, for tokens that are
// decoded together and for so many more bytes of the program. A plan knows nothing of them: where
// its budget leaves no room it is taken from its cache of neurons, of which Engine::Load leaves
// half at least, and then the KV cache has room for fewer.
void MakeRoomForRequests(EngineOptions& options, int64_t requests, uint64_t more_program_bytes);

// A plan of this machine for `model`, a path, with `activation` as in EngineOptions. Keeps the
// calling thread, and those that it starts from now on, to the plan's processors: load the engine
// on it. Throws hearth::Error, with `name` as the plan's.
EngineOptions ObeyPlan(const ExecutionPlan& plan, const std::string& name, const std::string& model,
                       const std::optional<GivenActivation>& activation = {});
// The same of a plan's file.
EngineOptions ObeyPlan(const std::string& plan, const std::string& model,
                       const std::optional<GivenActivation>& activation = {});

}  // namespace hearth
