// What `inspect` says about the packing of a file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "format/gguf.h"

namespace hearth::cli {

// Null for a plain file; {"error": sentence} for a packed one that cannot be used.
nlohmann::ordered_json PackingJson(const GgufFile& file);

// The same as lines of text; nothing for a plain file.
std::string PackingText(const nlohmann::ordered_json& packing);

}  // namespace hearth::cli
