// What the parts of the JSON Schema compiler share.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace hearth {

using SchemaJson = nlohmann::ordered_json;

// Error(kInvalidArgument) and Error(kUnsupported) of a schema.
[[noreturn]] void InvalidSchema(const std::string& what);
[[noreturn]] void UnsupportedSchema(const std::string& what);
// The same error, saying where in the schema; pointer: a JSON pointer, empty for all of it.
[[noreturn]] void FailAt(const Error& error, const std::string& pointer);

// Of a value, in one line. What is no UTF-8 becomes U+FFFD: users may type it, JSON must be UTF-8.
std::string JsonText(const SchemaJson& value);

// Names that only describe: they change nothing of what a schema allows.
bool OnlyDescribes(const std::string& name);
// True, or an object of such names.
bool SaysNothing(const SchemaJson& schema);
// Throws Error(kUnsupported) where comparing all values of two lists would take long.
void CheckPairs(const SchemaJson& a, const SchemaJson& b);

// The schema's types; one that names none has "object", "array" or "any" by its other names.
std::vector<std::string> SchemaTypes(const SchemaJson& schema);

std::set<std::string> RequiredNames(const SchemaJson& schema);

// The schema that "$ref" of a schema points to: the root, or anything inside of it ("#/$defs/a").
const SchemaJson& ReferencedSchema(const SchemaJson& root, const SchemaJson& schema);

}  // namespace hearth
