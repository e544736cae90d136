// The sampling options of `hearth run`.
#pragma once

#include <CLI/CLI.hpp>

#include "engine/session/sampler.h"

namespace hearth::cli {

void AddSamplingOptions(CLI::App& command, SamplingOptions& options);

// After parsing: throws UsageError for values outside their ranges and for options that would do
// nothing beside the others.
void CheckSamplingOptions(const CLI::App& command, const SamplingOptions& options);

// Throws UsageError where --logit-bias names a token that the model does not have.
void CheckLogitBias(const SamplingOptions& sampling, const Tokenizer& tokenizer);

}  // namespace hearth::cli
