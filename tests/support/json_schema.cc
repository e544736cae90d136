#include "json_schema.h"

#include <algorithm>
#include <set>

#include "base/test_data.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

bool HasType(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

class Checker {
 public:
  void Check(const Json& schema, const Json& value, const std::string& where) {
    for (const auto& [keyword, rule] : schema.items()) {
      if (!CheckKeyword(schema, keyword, rule, value, where)) {
        Complain(where, "the schema's '" + keyword + "' is not known here");
      }
    }
  }
  std::vector<std::string> complaints;

 private:
  void Complain(const std::string& where, const std::string& what) {
    complaints.push_back(where + ": " + what);
  }

  // False for an unknown keyword.
  bool CheckKeyword(const Json& schema, const std::string& keyword, const Json& rule,
                    const Json& value, const std::string& where) {
    static const std::set<std::string> kSaysNothing = {"$schema", "title", "description"};
    if (keyword == "type") {
      const Json types = rule.is_array() ? rule : Json::array({rule});
      const bool fits = std::any_of(types.begin(), types.end(), [&](const Json& type) {
        return HasType(value, type.get<std::string>());
      });
      if (!fits) Complain(where, value.dump() + " is not of type " + rule.dump());
    } else if (keyword == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) {
        Complain(where, value.dump() + " is none of " + rule.dump());
      }
    } else if (keyword == "const") {
      if (value != rule) Complain(where, value.dump() + " is not " + rule.dump());
    } else if (keyword == "oneOf") {
      CheckOneOf(rule, value, where);
    } else if (keyword == "minimum") {
      if (value.is_number() && value < rule) Complain(where, value.dump() + " is too small");
    } else if (keyword == "maximum") {
      if (value.is_number() && value > rule) Complain(where, value.dump() + " is too large");
    } else if (keyword == "minItems") {
      if (value.is_array() && value.size() < rule) Complain(where, "too few items");
    } else if (keyword == "maxItems") {
      if (value.is_array() && value.size() > rule) Complain(where, "too many items");
    } else if (keyword == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        Check(rule, value[i], where + "[" + std::to_string(i) + "]");
      }
    } else if (keyword == "required") {
      for (const Json& name : rule) {
        if (value.is_object() && !value.contains(name)) Complain(where, "no " + name.dump());
      }
    } else if (keyword == "properties" || keyword == "additionalProperties") {
      if (keyword == "properties") CheckMembers(rule, value, where);
      if (keyword == "additionalProperties") CheckOthers(schema, rule, value, where);
    } else {
      return kSaysNothing.count(keyword) > 0;
    }
    return true;
  }

  // Where none fits, the complaints about the one that comes closest.
  void CheckOneOf(const Json& rules, const Json& value, const std::string& where) {
    size_t fitting = 0;
    std::vector<std::string> closest;
    for (const Json& rule : rules) {
      Checker one;
      one.Check(rule, value, where);
      fitting += one.complaints.empty() ? 1 : 0;
      if (closest.empty() || one.complaints.size() < closest.size()) closest = one.complaints;
    }
    if (fitting > 1) Complain(where, "several alternatives fit");
    if (fitting == 0) complaints.insert(complaints.end(), closest.begin(), closest.end());
  }

  void CheckMembers(const Json& properties, const Json& value, const std::string& where) {
    if (!value.is_object()) return;
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) Check(properties[name], member, where + "." + name);
    }
  }

  void CheckOthers(const Json& schema, const Json& rule, const Json& value,
                   const std::string& where) {
    if (!value.is_object()) return;
    for (const auto& [name, member] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(name)) continue;
      if (rule.is_object()) {
        Check(rule, member, where + "." + name);
      } else if (!rule.get<bool>()) {
        Complain(where, "'" + name + "' is unknown");
      }
    }
  }
};

}  // namespace

std::vector<std::string> SchemaComplaints(const Json& schema, const Json& document) {
  Checker checker;
  checker.Check(schema, document, "document");
  return checker.complaints;
}

nlohmann::json Schema(const std::string& name) {
  return nlohmann::json::parse(
      ReadWholeFile(SourcePath("docs/formats/schemas/" + name + ".schema.json")));
}

}  // namespace hearth
