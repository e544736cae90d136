// The documents of /lora-adapters, in the form that llama.cpp's server has for them.
#pragma once

#include <string>
#include <string_view>

#include "hearth/hearth.hpp"

namespace hearth::serve {

// [{"id": 0, "path": "a.gguf", "scale": 1.0}, ...]: the adapters of a model and their default
// scales. `body` of a GET is ignored.
std::string AdaptersDocument(api::Model& model, std::string_view body);

// Reads a list as "lora" has it, and makes it the default scales. Throws RequestError and
// api::Error.
std::string SetAdaptersDocument(api::Model& model, std::string_view body);

}  // namespace hearth::serve
