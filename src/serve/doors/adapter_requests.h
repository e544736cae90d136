// Low-rank adapters over HTTP: a field of requests that generate, and the documents of
// /lora-adapters, in the form that llama.cpp's server has for both.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/json_fields.h"

namespace hearth::serve {

// "lora": [{"id": 0, "scale": 0.5}]; nothing where there is none. Adapters that are not listed have
// scale 0. Throws RequestError, naming the field.
std::optional<std::vector<api::AdapterScale>> TakeAdapters(Fields& fields);

// [{"id": 0, "path": "a.gguf", "scale": 1.0}, ...]: the adapters of a model and their default
// scales. `body` of a GET is ignored.
std::string AdaptersDocument(api::Model& model, std::string_view body);

// Reads a list as "lora" has it, and makes it the default scales. Throws RequestError and
// api::Error.
std::string SetAdaptersDocument(api::Model& model, std::string_view body);

}  // namespace hearth::serve
