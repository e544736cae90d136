#include "text/json_schema_parts.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

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

bool OnlyDescribes(const std::string& name) {
  static const std::set<std::string> names = {
      "title",    "description", "default",     "examples",   "$schema",  "$id",
      "$comment", "$defs",       "definitions", "deprecated", "readOnly", "writeOnly"};
  return names.count(name) > 0;
}

bool SaysNothing(const SchemaJson& schema) {
  if (!schema.is_object()) return schema == SchemaJson(true);
  return std::all_of(schema.items().begin(), schema.items().end(),
                     [](const auto& item) { return OnlyDescribes(item.key()); });
}

void CheckPairs(const SchemaJson& a, const SchemaJson& b) {
  constexpr size_t kMostPairs = 250'000;
  if (a.size() > kMostPairs / std::max<size_t>(b.size(), 1)) {
    UnsupportedSchema("'enum' of too many values to compare");
  }
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
