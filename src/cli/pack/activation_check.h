// Whether a text speaks against the FFN activation that a model runs with.
#pragma once

#include <optional>
#include <span>

#include "engine/engine.h"
#include "prepare/profile/activation_trial.h"

namespace hearth::cli {

// Tries the activations on `text` (TryActivations) where the file does not say which it is, with a
// progress line on a terminal. Where another one fits clearly better than the engine's, it throws
// Error(kInvalidArgument), or warns if a user gave the engine's. Nothing where nothing was tried.
// Throws Error(kCancelled) where it is interrupted.
std::optional<ActivationTrial> CheckActivation(Engine& engine, std::span<const TokenId> text);

}  // namespace hearth::cli
