// From what the library's users say of a model to what an engine does.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load/engine_options.h"
#include "hearth/hearth.hpp"

namespace hearth::api {

// Without a plan. Throws hearth::Error(kInvalidArgument), naming the option, for what makes no
// sense.
EngineOptions EngineOptionsOf(const LoadOptions& options);

// As options.plan says for the model at `path`, with what may be said beside it. Keeps the calling
// thread to the plan's processors (engine/load/obey_plan.h). Throws as ObeyPlan, and as above.
EngineOptions PlannedOptions(const std::string& path, const LoadOptions& options);

// Throws hearth::Error(kInvalidArgument) for options that do nothing for a model that is loaded.
void CheckLoaded(const LoadOptions& options, const Engine& engine);

// Returns what a user should know of a model that is loaded, one sentence each.
std::vector<std::string> DoubtsAbout(const Engine& engine);

}  // namespace hearth::api
