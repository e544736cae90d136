// What LoadOptions ask of the engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "hearth/hearth.hpp"
#include "text/chat/chat_format.h"

namespace hearth::api {

// Nothing where the option is empty. Throw hearth::Error(kInvalidArgument).
std::optional<GivenActivation> ActivationOf(const LoadOptions& options);
std::optional<ChatFormat> ChatFormatOf(const LoadOptions& options);

// The options of a model that is loaded without a plan. Throws hearth::Error(kInvalidArgument),
// naming the field.
EngineOptions ToEngine(const LoadOptions& options);
// Adds to what a plan says the options that it says nothing of.
void AddBesidePlan(const LoadOptions& options, EngineOptions& engine);
// Throws hearth::Error(kInvalidArgument) where an option is given that the plan decides.
void CheckPlanIsAlone(const LoadOptions& options);

// Throws hearth::Error(kInvalidArgument) for options that contradict each other, or that are out of
// range and are not part of ToEngine.
void CheckBeforeLoading(const LoadOptions& options);
// Throws hearth::Error(kInvalidArgument) for options that do nothing for the model.
void CheckLoaded(const LoadOptions& options, const Engine& engine);
// What a user should know of a model that is loaded, one sentence each.
std::vector<std::string> DoubtsAbout(const Engine& engine);

}  // namespace hearth::api
