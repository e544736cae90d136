// Which way an engine computes FFNs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/load/model.h"
#include "sparsity/mode.h"

namespace hearth {

// Key of a packed file, uint32: the mode that `pack` found fastest for it, as FfnMode numbers them.
inline constexpr std::string_view kFfnModeKey = "hearth.ffn_mode";

// The modes of a packed file, the sparsest last, and why a mode is none of them.
std::vector<FfnMode> ModesOfPacked(FfnActivation activation, bool has_predictors);
std::string MissingForMode(FfnMode mode, FfnActivation activation);

// The modes that a file can run in. Plain files are dense; packed ones also gated where silent
// neurons add nothing, and predicted where they have predictors too.
std::vector<FfnMode> UsableModes(const LoadPlan& plan);

// The mode to run `path` in: `wanted`, or, where nothing is wanted, the one that the file
// records, else the last of UsableModes. It depends on the file alone. Throws
// Error(kUnsupported), saying what is missing, where the file cannot run in it, and Error(kCorrupt)
// for a record that is no mode.
FfnMode ResolveMode(const GgufFile& file, const LoadPlan& plan, std::optional<FfnMode> wanted);

}  // namespace hearth
