// What the parts of the JSON Schema compiler share.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace hearth {

using SchemaJson = nlohmann::ordered_json;

// Kinds of JSON values: bits, since a schema may allow several.
inline constexpr uint8_t kNullKind = 1;
inline constexpr uint8_t kBooleanKind = 2;
inline constexpr uint8_t kIntegerKind = 4;
inline constexpr uint8_t kFractionKind = 8;
inline constexpr uint8_t kStringKind = 16;
inline constexpr uint8_t kArrayKind = 32;
inline constexpr uint8_t kObjectKind = 64;
inline constexpr uint8_t kAllKinds = 127;

// The kind of a value: of a number by its value, so that 1.0 is an integer.
uint8_t KindOfValue(const SchemaJson& value);
// A text that is the same for values that are equal in JSON Schema: 1 and 1.0, members in any
// order.
std::string EqualityText(const SchemaJson& value);

// Error(kInvalidArgument) and Error(kUnsupported) of a schema.
[[noreturn]] void InvalidSchema(const std::string& what);
[[noreturn]] void UnsupportedSchema(const std::string& what);
// The same error, saying where in the schema; pointer: a JSON pointer, empty for all of it.
[[noreturn]] void FailAt(const Error& error, const std::string& pointer);

// Of a value, in one line. What is no UTF-8 becomes U+FFFD: users may type it, JSON must be UTF-8.
std::string JsonText(const SchemaJson& value);

// True, or an object without assertions.
bool SaysNothing(const SchemaJson& schema);
// Names that say what a document must be. All others are annotations: JSON Schema Core, 6.5.
bool IsAssertion(const std::string& name);

// The schema's types; one that names none has "object", "array" or "any" by its other names.
std::vector<std::string> SchemaTypes(const SchemaJson& schema);

std::set<std::string> RequiredNames(const SchemaJson& schema);

// The schema that "$ref" of a schema points to: the root, or anything inside of it ("#/$defs/a").
const SchemaJson& ReferencedSchema(const SchemaJson& root, const SchemaJson& schema);

}  // namespace hearth
