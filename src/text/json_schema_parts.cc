#include "text/json_schema_parts.h"

#include <algorithm>

#include "base/error.h"

namespace hearth {
namespace {

constexpr char kSchema[] = "JSON schema";

bool HasLiterals(const SchemaJson& schema) {
  return schema.is_object() && (schema.contains("const") || schema.contains("enum"));
}

bool LiteralsDiffer(const SchemaJson& a, const SchemaJson& b) {
  const auto values = [](const SchemaJson& schema) {
    return schema.contains("const") ? SchemaJson::array({schema["const"]}) : schema["enum"];
  };
  const SchemaJson of_a = values(a), of_b = values(b);
  CheckPairs(of_a, of_b);
  for (const SchemaJson& value : of_a) {
    for (const SchemaJson& other : of_b) {
      if (value == other) return false;
    }
  }
  return true;
}

bool TypesOverlap(const std::string& a, const std::string& b) {
  const auto is_numeric = [](const std::string& type) {
    return type == "number" || type == "integer";
  };
  return a == b || a == "any" || b == "any" || (is_numeric(a) && is_numeric(b));
}

}  // namespace

void InvalidSchema(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, kSchema, what);
}

void UnsupportedSchema(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, kSchema, what);
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
  const std::string path = schema["$ref"];
  if (path == "#") return root;
  for (const char* folder : {"$defs", "definitions"}) {
    const std::string prefix = "#/" + std::string(folder) + "/";
    if (path.rfind(prefix, 0) != 0 || !root.is_object() || !root.contains(folder)) continue;
    const SchemaJson& definitions = root[folder];
    const std::string name = path.substr(prefix.size());
    if (definitions.is_object() && definitions.contains(name)) return definitions[name];
  }
  UnsupportedSchema("'$ref' to '" + Printable(path) + "'");
}

bool AreDisjoint(const SchemaJson& a, const SchemaJson& b) {
  if (!a.is_object() || !b.is_object()) return false;
  if (HasLiterals(a) && HasLiterals(b)) return LiteralsDiffer(a, b);
  for (const SchemaJson* schema : {&a, &b}) {
    for (const char* name : {"$ref", "allOf", "anyOf", "oneOf", "enum", "const"}) {
      if (schema->contains(name)) return false;
    }
  }
  const std::vector<std::string> types = SchemaTypes(a), others = SchemaTypes(b);
  const bool types_differ = std::none_of(types.begin(), types.end(), [&](const std::string& type) {
    return std::any_of(others.begin(), others.end(),
                       [&](const std::string& other) { return TypesOverlap(type, other); });
  });
  if (types_differ) return true;
  if (types != std::vector<std::string>{"object"} || others != types) return false;
  const std::set<std::string> required = RequiredNames(b);
  for (const std::string& name : RequiredNames(a)) {
    if (required.count(name) == 0) continue;
    const SchemaJson none = SchemaJson::object();
    const SchemaJson first = a.value("properties", none).value(name, SchemaJson());
    const SchemaJson second = b.value("properties", none).value(name, SchemaJson());
    if (HasLiterals(first) && HasLiterals(second) && LiteralsDiffer(first, second)) return true;
  }
  return false;
}

}  // namespace hearth
