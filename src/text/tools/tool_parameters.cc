#include "text/tools/tool_parameters.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "text/tokenizer/white_space.h"
#include "text/tools/python_literal.h"

namespace hearth {
namespace {

using Json = SchemaJson;

// A schema that takes longer to look through may allow anything.
constexpr int kMostSteps = 1000;

class KindFinder {
 public:
  explicit KindFinder(const Json& root) : root_(root) {}

  uint8_t Find(const Json& schema) {
    steps_ = 0;
    return Look(schema, 0);
  }

 private:
  uint8_t Look(const Json& schema, int depth) {
    constexpr int kMaxDepth = 16;
    if (!schema.is_object() || depth > kMaxDepth || ++steps_ > kMostSteps) return kAllKinds;
    if (schema.contains("$ref")) return Look(ReferencedSchema(root_, schema), depth + 1);
    if (schema.contains("const")) return KindOfValue(schema["const"]);
    if (schema.contains("enum")) return OfAll(schema["enum"], KindOfValue);
    for (const char* name : {"anyOf", "oneOf"}) {
      if (!schema.contains(name)) continue;
      const auto kinds = OfAll(schema[name], [&](const Json& one) { return Look(one, depth + 1); });
      return kinds & OfTypes(schema);
    }
    return OfTypes(schema);
  }

  static uint8_t OfTypes(const Json& schema) {
    uint8_t kinds = 0;
    for (const std::string& type : SchemaTypes(schema)) kinds |= KindsOfType(type);
    return kinds;
  }

  template <typename Fn>
  static uint8_t OfAll(const Json& list, Fn&& kinds_of) {
    if (!list.is_array()) return kAllKinds;
    uint8_t kinds = 0;
    for (const Json& one : list) kinds |= kinds_of(one);
    return kinds;
  }

  static uint8_t KindsOfType(const std::string& type) {
    static const std::map<std::string, int> kinds = {{"null", kNullKind},
                                                     {"boolean", kBooleanKind},
                                                     {"integer", kIntegerKind},
                                                     {"string", kStringKind},
                                                     {"array", kArrayKind},
                                                     {"object", kObjectKind},
                                                     {"number", kIntegerKind | kFractionKind}};
    const auto known = kinds.find(type);
    return static_cast<uint8_t>(known == kinds.end() ? kAllKinds : known->second);
  }

 private:
  const Json& root_;
  int steps_ = 0;
};

}  // namespace

uint8_t ToolParameters::KindsOf(std::string_view name) const {
  const auto known = std::find_if(all.begin(), all.end(), [&](const ToolParameter& parameter) {
    return parameter.name == name;
  });
  return known == all.end() ? kAllKinds : known->kinds;
}

ToolParameters ReadToolParameters(const std::string& schema) {
  ToolParameters parameters;
  Json json = Json::parse(schema, nullptr, false);
  if (!json.is_object()) return parameters;
  parameters.root = std::make_shared<const Json>(std::move(json));
  const Json& root = *parameters.root;
  if (!root.contains("properties") || !root["properties"].is_object()) return parameters;
  KindFinder finder(root);
  for (const auto& [name, property] : root["properties"].items()) {
    ToolParameter& parameter = parameters.all.emplace_back();
    parameter.name = name;
    parameter.schema = &property;
    try {
      parameter.kinds = finder.Find(property);
    } catch (const Error&) {
      // Of a schema that makes no sense: only a grammar cares.
    }
  }
  return parameters;
}

std::string JsonOfBareText(const std::string& text, uint8_t kinds) {
  if (kinds == kStringKind) return JsonText(text);
  const std::string value = PythonToJson(Trim(text)).value_or("");
  if (!value.empty()) {
    const uint8_t kind = KindOfValue(Json::parse(value, nullptr, false));
    // A quoted text is meant as it stands, quotes and all.
    if (kind != kStringKind && ((kind & kinds) != 0 || (kinds & kStringKind) == 0)) return value;
  }
  return JsonText(text);
}

std::string JsonOfPython(const std::string& text) {
  const std::string trimmed(Trim(text));
  return PythonToJson(trimmed).value_or(JsonText(trimmed));
}

}  // namespace hearth
