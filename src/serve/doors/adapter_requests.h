// Low-rank adapters in requests, in the form that llama.cpp's server has for them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/json_fields.h"

namespace hearth::serve {

// "lora": [{"id": 0, "scale": 0.5}]; nothing where there is none. Adapters that are not listed have
// scale 0. Throws RequestError, naming the field.
std::optional<std::vector<api::AdapterScale>> TakeAdapters(Fields& fields);

// The same of a body that is such a list and nothing else. Throws RequestError.
std::vector<api::AdapterScale> ReadAdapters(std::string_view body);

}  // namespace hearth::serve
