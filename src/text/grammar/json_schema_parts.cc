#include "text/grammar/json_schema_parts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "text/grammar/json_decimal.h"

namespace hearth {
namespace {

constexpr char kSchema[] = "JSON schema";

// A name of a pointer in a fragment of a URI: RFC 6901, section 6.
std::string Unescaped(std::string_view step) {
  std::string name;
  for (size_t i = 0; i < step.size(); ++i) {
    unsigned byte = 0;
    const bool is_coded = step[i] == '%' && i + 2 < step.size() &&
                          std::from_chars(&step[i + 1], &step[i] + 3, byte, 16).ptr == &step[i] + 3;
    if (is_coded) i += 2;
    name += is_coded ? static_cast<char>(byte) : step[i];
  }
  for (const auto& [code, letter] : {std::pair("~1", '/'), std::pair("~0", '~')}) {
    for (size_t at = 0; (at = name.find(code, at)) != std::string::npos; ++at) {
      name.replace(at, 2, 1, letter);
    }
  }
  return name;
}

// The value of that name or number, null where there is none.
const SchemaJson* Inside(const SchemaJson& value, const std::string& name) {
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : &*found;
  }
  size_t index = 0;
  const char* end = name.data() + name.size();
  const bool is_index = std::from_chars(name.data(), end, index).ptr == end && !name.empty();
  return value.is_array() && is_index && index < value.size() ? &value[index] : nullptr;
}

}  // namespace

void InvalidSchema(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, kSchema, what);
}

void UnsupportedSchema(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, kSchema, what);
}

void FailAt(const Error& error, const std::string& pointer) {
  const std::string prefix = std::string(kSchema) + ": ";
  std::string what = error.what();
  if (what.rfind(prefix, 0) == 0) what.erase(0, prefix.size());
  if (!pointer.empty()) what += " (at '#" + Printable(pointer) + "')";
  throw Error(error.code(), kSchema, what);
}

std::string JsonText(const SchemaJson& value) {
  return value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

bool IsAssertion(const std::string& name) {
  static const std::set<std::string> names = {
      "$dynamicRef",
      "$recursiveRef",
      "$ref",
      "additionalItems",
      "additionalProperties",
      "allOf",
      "anyOf",
      "const",
      "contains",
      "dependencies",
      "dependentRequired",
      "dependentSchemas",
      "else",
      "enum",
      "exclusiveMaximum",
      "exclusiveMinimum",
      "format",
      "if",
      "items",
      "maxContains",
      "maximum",
      "maxItems",
      "maxLength",
      "maxProperties",
      "minContains",
      "minimum",
      "minItems",
      "minLength",
      "minProperties",
      "multipleOf",
      "not",
      "oneOf",
      "pattern",
      "patternProperties",
      "prefixItems",
      "properties",
      "propertyNames",
      "required",
      "then",
      "type",
      "unevaluatedItems",
      "unevaluatedProperties",
      "uniqueItems",
  };
  return names.count(name) > 0;
}

bool SaysNothing(const SchemaJson& schema) {
  if (!schema.is_object()) return schema == SchemaJson(true);
  return std::none_of(schema.items().begin(), schema.items().end(),
                      [](const auto& item) { return IsAssertion(item.key()); });
}

uint8_t KindOfValue(const SchemaJson& value) {
  switch (value.type()) {
    case SchemaJson::value_t::null:
      return kNullKind;
    case SchemaJson::value_t::boolean:
      return kBooleanKind;
    case SchemaJson::value_t::number_integer:
    case SchemaJson::value_t::number_unsigned:
      return kIntegerKind;
    case SchemaJson::value_t::number_float:
      return std::trunc(value.get<double>()) == value.get<double>() ? kIntegerKind : kFractionKind;
    case SchemaJson::value_t::array:
      return kArrayKind;
    case SchemaJson::value_t::object:
      return kObjectKind;
    default:
      return kStringKind;
  }
}

std::string EqualityText(const SchemaJson& value) {
  if (value.is_array()) {
    std::string text = "[";
    for (const SchemaJson& item : value) text += EqualityText(item) + ",";
    return text + "]";
  }
  if (value.is_object()) {
    std::map<std::string, std::string> members;
    for (const auto& [name, member] : value.items()) members[name] = EqualityText(member);
    std::string text = "{";
    for (const auto& [name, member] : members) text += JsonText(name) + ":" + member + ",";
    return text + "}";
  }
  if (value.is_number()) return DecimalOf(value).ToText();
  return JsonText(value);
}

std::vector<std::string> SchemaTypes(const SchemaJson& schema) {
  static const std::vector<std::string> known = {"object",  "array",   "string", "number",
                                                 "integer", "boolean", "null"};
  std::vector<std::string> types;
  if (!schema.contains("type")) {
    if (schema.contains("properties")) return {"object"};
    if (schema.contains("items")) return {"array"};
    return {"any"};
  }
  const SchemaJson& type = schema["type"];
  for (const SchemaJson& name : type.is_array() ? type : SchemaJson::array({type})) {
    if (!name.is_string() || std::count(known.begin(), known.end(), name.get<std::string>()) == 0) {
      InvalidSchema("'type' names no type of JSON");
    }
    types.push_back(name);
  }
  if (types.empty()) InvalidSchema("'type' is empty");
  return types;
}

std::set<std::string> RequiredNames(const SchemaJson& schema) {
  std::set<std::string> names;
  if (!schema.contains("required")) return names;
  if (!schema["required"].is_array()) InvalidSchema("'required' must be a list");
  for (const SchemaJson& name : schema["required"]) {
    if (!name.is_string()) InvalidSchema("'required' must be a list of names");
    names.insert(name);
  }
  return names;
}

const SchemaJson& ReferencedSchema(const SchemaJson& root, const SchemaJson& schema) {
  if (!schema["$ref"].is_string()) InvalidSchema("'$ref' must be a text");
  const auto& path = schema["$ref"].get_ref<const std::string&>();
  if (path != "#" && path.rfind("#/", 0) != 0) {
    UnsupportedSchema("'$ref' to '" + Printable(path) + "'");
  }
  const SchemaJson* found = &root;
  for (size_t at = 1; at < path.size() && found != nullptr;) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    found = Inside(*found, Unescaped(std::string_view(path).substr(at + 1, end - at - 1)));
    at = end;
  }
  if (found == nullptr) {
    InvalidSchema("'$ref' to '" + Printable(path) + "', which is not there");
  }
  return *found;
}

}  // namespace hearth
