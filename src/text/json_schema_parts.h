// What the parts of the JSON Schema compiler share.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace hearth {

using SchemaJson = nlohmann::ordered_json;

// Error(kInvalidArgument) and Error(kUnsupported) of a schema.
[[noreturn]] void InvalidSchema(const std::string& what);
[[noreturn]] void UnsupportedSchema(const std::string& what);

// Names that only describe: they change nothing of what a schema allows.
bool OnlyDescribes(const std::string& name);

// The schema's types; one that names none has "object", "array" or "any" by its other names.
std::vector<std::string> SchemaTypes(const SchemaJson& schema);

std::set<std::string> RequiredNames(const SchemaJson& schema);

// The schema that "$ref" of a schema names: the root, or one in its $defs or definitions.
const SchemaJson& ReferencedSchema(const SchemaJson& root, const SchemaJson& schema);

// Whether no document can be of both: their types differ, or what they say a property is that both
// require.
bool AreDisjoint(const SchemaJson& a, const SchemaJson& b);

}  // namespace hearth
