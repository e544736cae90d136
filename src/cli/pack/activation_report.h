// What `hearth profile` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sparsity/profile.h"

namespace hearth::cli {

// A table, a line per layer and one for the whole model; after it, for SiLU, what that means.
std::string ActivationText(const ModelProfile& profile);

// The profile document (docs/formats/schemas/profile.schema.json) without its "files".
nlohmann::ordered_json ActivationJson(const ModelProfile& profile);

}  // namespace hearth::cli
