#include "text/json_schema_disjoint.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace hearth {
namespace {

using Json = SchemaJson;
using Schemas = std::vector<const Json*>;

// Objects of which each is compared with each: some ten thousand pairs.
constexpr size_t kMostCompared = 200;

struct LessOfValues {
  bool operator()(const Json* a, const Json* b) const { return *a < *b; }
};

bool HasLiterals(const Json& schema) {
  return schema.is_object() && (schema.contains("const") || schema.contains("enum"));
}

Schemas LiteralsOf(const Json& schema) {
  if (schema.contains("const")) return {&schema["const"]};
  Schemas values;
  for (const Json& value : schema["enum"]) values.push_back(&value);
  return values;
}

// Whether no two of them, which all have literals, have one in common.
bool LiteralsDiffer(const Schemas& schemas) {
  std::map<const Json*, const Json*, LessOfValues> owners;
  for (const Json* schema : schemas) {
    for (const Json* value : LiteralsOf(*schema)) {
      if (owners.emplace(value, schema).first->second != schema) return false;
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

bool SaysItsTypes(const Json& schema) {
  if (!schema.is_object()) return false;
  for (const char* name : {"$ref", "allOf", "anyOf", "oneOf", "enum", "const"}) {
    if (schema.contains(name)) return false;
  }
  return true;
}

bool TypesDiffer(const Json& a, const Json& b) {
  if (!SaysItsTypes(a) || !SaysItsTypes(b)) return false;
  const std::vector<std::string> types = SchemaTypes(a), others = SchemaTypes(b);
  return std::none_of(types.begin(), types.end(), [&](const std::string& type) {
    return std::any_of(others.begin(), others.end(),
                       [&](const std::string& other) { return TypesOverlap(type, other); });
  });
}

bool IsOfObjects(const Json& schema) {
  return SaysItsTypes(schema) && SchemaTypes(schema) == std::vector<std::string>{"object"};
}

// What a schema of objects says of a property that it requires, null where it has no literals.
const Json* RequiredLiterals(const Json& schema, const std::string& name) {
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return nullptr;
  const auto property = properties->find(name);
  if (property == properties->end() || !HasLiterals(*property)) return nullptr;
  const Json& required = schema["required"];
  return std::find(required.begin(), required.end(), name) == required.end() ? nullptr : &*property;
}

// Whether one property tells all of these objects apart.
bool HaveTag(const Schemas& objects) {
  for (const Json* object : objects) RequiredNames(*object);  // which throws for what is no list
  for (const std::string& name : RequiredNames(*objects[0])) {
    Schemas tags;
    for (const Json* object : objects) {
      const Json* tag = object->contains("required") ? RequiredLiterals(*object, name) : nullptr;
      if (tag == nullptr) break;
      tags.push_back(tag);
    }
    if (tags.size() == objects.size() && LiteralsDiffer(tags)) return true;
  }
  return false;
}

bool ObjectsDiffer(const Schemas& objects) {
  if (objects.size() < 2 || HaveTag(objects)) return true;
  if (objects.size() > kMostCompared) {
    UnsupportedSchema("'oneOf' of more than " + std::to_string(kMostCompared) +
                      " objects that no property tells apart");
  }
  for (size_t a = 0; a < objects.size(); ++a) {
    for (size_t b = a + 1; b < objects.size(); ++b) {
      if (!HaveTag({objects[a], objects[b]})) return false;
    }
  }
  return true;
}

// Whether the types of each of `some`, which are no objects alone, are none of another schema's.
// There are seven types: of many schemas two soon have one in common.
bool TypesDifferFromAll(const Schemas& some, const Schemas& objects) {
  for (size_t a = 0; a < some.size(); ++a) {
    const auto differs = [&](const Json* other) { return TypesDiffer(*some[a], *other); };
    if (!std::all_of(some.begin() + static_cast<ptrdiff_t>(a) + 1, some.end(), differs) ||
        !std::all_of(objects.begin(), objects.end(), differs)) {
      return false;
    }
  }
  return true;
}

bool AreDisjoint(const Json& schemas) {
  Schemas literals, objects, others;
  for (const Json& schema : schemas) {
    Schemas& kind = HasLiterals(schema) ? literals : IsOfObjects(schema) ? objects : others;
    kind.push_back(&schema);
  }
  if (!literals.empty()) return literals.size() == schemas.size() && LiteralsDiffer(literals);
  return TypesDifferFromAll(others, objects) && ObjectsDiffer(objects);
}

}  // namespace

void CheckDisjoint(const SchemaJson& schemas) {
  if (AreDisjoint(schemas)) return;
  UnsupportedSchema("'oneOf' of schemas that may allow the same document; try 'anyOf'");
}

}  // namespace hearth
