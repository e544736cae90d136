#include "text/json_schema_merge.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

using Json = SchemaJson;

constexpr int kDeepestMerge = 60;
constexpr int64_t kMostNames = 20'000;

std::string Quoted(const std::string& name) { return "'" + Printable(name) + "'"; }

bool IsFalse(const Json& schema) { return schema.is_boolean() && !schema.get<bool>(); }

// The property of that name as this schema sees it, null where it does not say.
const Json* PropertyOf(const Json& schema, const std::string& name) {
  const auto properties = schema.find("properties");
  if (properties != schema.end() && properties->is_object() && properties->contains(name)) {
    return &(*properties)[name];
  }
  const auto others = schema.find("additionalProperties");
  return others == schema.end() ? nullptr : &*others;
}

Json TypesInCommon(const Json& a, const Json& b) {
  const std::vector<std::string> others = SchemaTypes(b);
  const auto has = [](const std::vector<std::string>& types, const char* type) {
    return std::count(types.begin(), types.end(), type) > 0;
  };
  Json types = Json::array();
  const std::vector<std::string> own = SchemaTypes(a);
  for (const std::string& type : own) {
    if (has(others, type.c_str()) || (type == "integer" && has(others, "number"))) {
      types.push_back(type);
    } else if (type == "number" && has(others, "integer") && !has(own, "integer")) {
      types.push_back("integer");
    }
  }
  if (types.empty()) InvalidSchema("schemas that must all hold have no type in common");
  return types.size() == 1 ? types[0] : types;
}

Json ValuesInCommon(const Json& a, const Json& b) {
  if (!a.is_array() || !b.is_array()) InvalidSchema("'enum' must be a list of values");
  CheckPairs(a, b);
  Json values = Json::array();
  for (const Json& value : a) {
    if (std::count(b.begin(), b.end(), value) > 0) values.push_back(value);
  }
  if (values.empty()) InvalidSchema("schemas that must all hold have no value in common");
  return values;
}

Json Larger(const Json& a, const Json& b, const std::string& name, bool larger) {
  if (!a.is_number() || !b.is_number()) InvalidSchema(Quoted(name) + " must be a number");
  return (a < b) == larger ? b : a;
}

// A schema of this name alone.
Json Only(const std::string& name, const Json& value) {
  Json schema = Json::object();
  schema[name] = value;
  return schema;
}

// "const" as a list of one, so that both kinds of values can be compared.
Json WithoutConst(Json schema) {
  if (!schema.contains("const")) return schema;
  Json one = Json::array({schema["const"]});
  schema.erase("const");
  schema["enum"] = schema.contains("enum") ? ValuesInCommon(one, schema["enum"]) : one;
  return schema;
}

}  // namespace

void SchemaMerger::Count(const Json& schema, int depth) {
  if (depth > kDeepestMerge) UnsupportedSchema("'allOf' is nested too deeply");
  names_ += static_cast<int64_t>(schema.size()) + 1;
  const auto properties = schema.is_object() ? schema.find("properties") : schema.end();
  if (schema.is_object() && properties != schema.end()) {
    names_ += static_cast<int64_t>(properties->size());
  }
  // What is copied with it, over and over.
  if (schema.is_object() && schema.contains("enum")) {
    names_ += static_cast<int64_t>(schema["enum"].size());
  }
  if (names_ > kMostNames) UnsupportedSchema("'allOf' of too many schemas");
}

// Without "allOf" at its top. A reference that stands alone stays one.
Json SchemaMerger::Flat(const Json& schema, int depth) {
  Count(schema, depth);
  if (!schema.is_object() || !schema.contains("allOf")) return schema;
  const Json& parts = schema["allOf"];
  if (!parts.is_array() || parts.empty()) InvalidSchema("'allOf' must be a list of schemas");
  Json merged = schema;
  merged.erase("allOf");
  for (const Json& part : parts) merged = Both(merged, Flat(part, depth + 1), depth + 1);
  return merged;
}

Json SchemaMerger::Both(const Json& a, const Json& b, int depth) {
  Count(a, depth);
  Count(b, depth);
  for (const Json* schema : {&a, &b}) {
    if (!schema->is_object() && !schema->is_boolean()) {
      InvalidSchema("a schema must be an object or true");
    }
    if (IsFalse(*schema)) InvalidSchema("'allOf' with false allows nothing");
  }
  if (SaysNothing(a)) return b;
  if (SaysNothing(b)) return a;
  if (a == b) return a;
  const auto resolved = [&](const Json& schema) {
    if (schema.contains("allOf")) return Flat(schema, depth + 1);
    if (!schema.contains("$ref")) return schema;
    Json rest = schema;
    rest.erase("$ref");
    return Both(rest, Flat(ReferencedSchema(root_, schema), depth + 1), depth + 1);
  };
  if (a.contains("$ref") || b.contains("$ref") || a.contains("allOf") || b.contains("allOf")) {
    return Both(resolved(a), resolved(b), depth + 1);
  }
  const Json first = WithoutConst(a);
  const Json second = WithoutConst(b);
  Json out = first;
  for (const auto& [name, value] : second.items()) {
    if (name != "properties" && name != "additionalProperties") AddName(name, value, out, depth);
  }
  AddProperties(first, second, out, depth);
  AddOthers(first, second, out, depth);
  return out;
}

// Properties of both, and those of one where the other lets them be.
void SchemaMerger::AddProperties(const Json& a, const Json& b, Json& out, int depth) {
  if (!a.contains("properties") && !b.contains("properties")) return;
  Json properties = Json::object();
  for (const Json* schema : {&a, &b}) {
    const Json& other = schema == &a ? b : a;
    if (!schema->contains("properties")) continue;
    if (!(*schema)["properties"].is_object()) InvalidSchema("'properties' must be an object");
    for (const auto& [name, property] : (*schema)["properties"].items()) {
      if (properties.contains(name)) continue;
      const Json* seen = PropertyOf(other, name);
      if (seen == nullptr) {
        properties[name] = property;
      } else if (!IsFalse(*seen)) {
        properties[name] = Both(property, *seen, depth + 1);
      } else if (RequiredNames(out).count(name) > 0) {
        InvalidSchema("'allOf' requires " + Quoted(name) + " and forbids it");
      }
    }
  }
  out["properties"] = std::move(properties);
}

void SchemaMerger::AddOthers(const Json& a, const Json& b, Json& out, int depth) {
  const char* const name = "additionalProperties";
  if (!b.contains(name)) return;  // what `a` says is there already
  if (!a.contains(name)) {
    out[name] = b[name];
  } else if (IsFalse(a[name]) || IsFalse(b[name])) {
    out[name] = false;
  } else {
    out[name] = Both(a[name], b[name], depth + 1);
  }
}

void SchemaMerger::AddName(const std::string& name, const Json& value, Json& out, int depth) {
  if (!out.contains(name)) {
    out[name] = value;
    return;
  }
  const Json own = out[name];
  if (own == value || OnlyDescribes(name)) return;
  if (name == "type") {
    out[name] = TypesInCommon(Only(name, own), Only(name, value));
  } else if (name == "enum") {
    out[name] = ValuesInCommon(own, value);
  } else if (name == "required") {
    std::set<std::string> names = RequiredNames(Only(name, own));
    names.merge(RequiredNames(Only(name, value)));
    out[name] = names;
  } else if (name == "items") {
    out[name] = Both(own, value, depth + 1);
  } else if (name.rfind("min", 0) == 0 || name == "exclusiveMinimum") {
    out[name] = Larger(own, value, name, true);
  } else if (name.rfind("max", 0) == 0 || name == "exclusiveMaximum") {
    out[name] = Larger(own, value, name, false);
  } else {
    UnsupportedSchema("schemas that must all hold each have " + Quoted(name));
  }
}

}  // namespace hearth
