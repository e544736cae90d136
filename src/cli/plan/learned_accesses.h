// What a model's tokens need, kept in the cache folder: `pack --text` and `plan` learn it, and
// plans are made from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cli/options/model_options.h"
#include "planner/cost/access_record.h"

namespace hearth::cli {

// How many tokens of a text are learned from, unless the user says otherwise, and the fewest that
// will do.
inline constexpr int64_t kTokensToLearnFrom = 256;
inline constexpr size_t kLeastTokensToLearnFrom = 8;

// What was learned of the model in this mode; nothing where that is nothing, or cannot be used any
// more, of which it warns. Throws Error(kNotFound) where there is no folder for it, Error(kIo)
// where it cannot be made.
std::optional<AccessRecord> FindAccesses(uint64_t model_hash, FfnMode mode);

// Runs the tokens through the model in this mode, with a progress line on a terminal; keeps and
// returns what they need. Throws as FindAccesses, LoadEngine and RecordAccesses do, and
// Error(kCancelled) where interruptions are caught and one comes.
AccessRecord LearnAccesses(const ModelOptions& model, uint64_t model_hash, FfnMode mode,
                           std::span<const TokenId> tokens);

// Where it is kept, made where it is missing; throws as FindAccesses.
std::string FolderOfAccesses();

}  // namespace hearth::cli
