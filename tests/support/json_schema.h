// The part of JSON Schema that docs/formats/schemas/ uses.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hearth {

// What of `document` breaks `schema`, a line each, with where; empty where it conforms. A keyword
// that this checker does not know is a complaint too.
std::vector<std::string> SchemaComplaints(const nlohmann::json& schema,
                                          const nlohmann::json& document);

// The schema of a document, by its name in docs/formats/schemas: "bench".
nlohmann::json Schema(const std::string& name);

}  // namespace hearth
