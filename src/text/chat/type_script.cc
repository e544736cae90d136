#include "text/chat/type_script.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

// Of types inside of types; what is deeper is "any".
constexpr int kMostDepth = 32;

std::string JsonOf(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The lines of a text, each after "// ".
std::string Comment(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.append("// ").append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string TextOf(const Json& schema, const char* key) {
  const auto found = schema.find(key);
  return found != schema.end() && found->is_string() ? found->get<std::string>() : "";
}

// The list of that name; null where there is none, or an empty one.
const Json* ListOf(const Json& schema, const char* key) {
  const auto found = schema.find(key);
  return found != schema.end() && found->is_array() && !found->empty() ? &*found : nullptr;
}

const Json* VariantsOf(const Json& schema) {
  const Json* one = ListOf(schema, "oneOf");
  return one != nullptr ? one : ListOf(schema, "anyOf");
}

bool HasProperties(const Json& schema) {
  const auto found = schema.find("properties");
  return found != schema.end() && found->is_object() && !found->empty();
}

bool IsRequired(const Json& schema, const std::string& name) {
  const Json* required = ListOf(schema, "required");
  return required != nullptr &&
         std::any_of(required->begin(), required->end(), [&](const Json& entry) {
           return entry.is_string() && entry.get_ref<const std::string&>() == name;
         });
}

std::string Joined(const std::vector<std::string>& types) {
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : " | ") + type;
  return text;
}

std::string TypeOf(const Json& schema, int depth);

// "| TYPE // what it is", a line for each.
std::string VariantLines(const Json& variants, int depth) {
  std::string lines;
  for (const Json& variant : variants) {
    lines += " | " + TypeOf(variant, depth + 1);
    if (variant.is_object()) {
      const std::string description = TextOf(variant, "description");
      std::string words = Comment(description.substr(0, description.find('\n')));
      if (!words.empty()) words.pop_back();
      if (variant.contains("default")) {
        words += (words.empty() ? "// default: " : ", default: ") + JsonOf(variant["default"]);
      }
      if (!words.empty()) lines += " " + words;
    }
    lines += "\n";
  }
  return lines;
}

std::string Member(const std::string& name, bool is_required, const Json& schema, int depth) {
  const std::string key = name + (is_required ? ":" : "?:");
  if (!schema.is_object()) return key + " any,\n";
  std::string text;
  const std::string title = TextOf(schema, "title");
  if (!title.empty()) text += Comment(title) + "//\n";
  text += Comment(TextOf(schema, "description"));
  if (const Json* examples = ListOf(schema, "examples")) {
    text += "// Examples:\n";
    for (const Json& example : *examples) text += Comment("- " + JsonOf(example));
  }
  const auto standard = schema.find("default");
  const bool has_default = standard != schema.end();
  if (const Json* variants = VariantsOf(schema)) {
    if (has_default) text += "// default: " + JsonOf(*standard) + "\n";
    return text + key + "\n" + VariantLines(*variants, depth) + ",\n";
  }
  text += key + " " + TypeOf(schema, depth + 1) + ",";
  if (has_default) {
    const bool is_word = ListOf(schema, "enum") != nullptr && standard->is_string();
    text += " // default: " + (is_word ? standard->get<std::string>() : JsonOf(*standard));
  }
  return text + "\n";
}

std::string ObjectType(const Json& schema, int depth) {
  std::string text = "{\n";
  for (const auto& [name, member] : schema["properties"].items()) {
    text += Member(name, IsRequired(schema, name), member, depth);
  }
  return text + "}";
}

std::string ArrayType(const Json& schema, int depth) {
  const auto items = schema.find("items");
  if (items == schema.end()) return "any[]";
  const std::string type = TypeOf(*items, depth + 1);
  return type.find(" | ") == std::string::npos ? type + "[]" : "(" + type + ")[]";
}

std::string NamedType(const std::string& name, const Json& schema, int depth) {
  if (name == "string" || name == "number" || name == "boolean" || name == "null") return name;
  if (name == "integer") return "number";
  if (name == "array") return ArrayType(schema, depth);
  if (name == "object") return HasProperties(schema) ? ObjectType(schema, depth) : "object";
  return "any";
}

std::string TypeOf(const Json& schema, int depth) {
  if (!schema.is_object() || depth > kMostDepth) return "any";
  std::vector<std::string> types;
  if (const Json* values = ListOf(schema, "enum")) {
    for (const Json& value : *values) types.push_back(JsonOf(value));
  } else if (schema.contains("const")) {
    types.push_back(JsonOf(schema["const"]));
  } else if (const Json* variants = VariantsOf(schema)) {
    for (const Json& variant : *variants) types.push_back(TypeOf(variant, depth + 1));
  } else if (const Json* names = ListOf(schema, "type")) {
    for (const Json& name : *names) {
      types.push_back(name.is_string() ? NamedType(name.get<std::string>(), schema, depth) : "any");
    }
  } else {
    const std::string name = TextOf(schema, "type");
    types.push_back(
        NamedType(name.empty() && HasProperties(schema) ? "object" : name, schema, depth));
  }
  const auto nullable = schema.find("nullable");
  if (nullable != schema.end() && nullable->is_boolean() && nullable->get<bool>())
    types.emplace_back("null");
  return Joined(types);
}

std::string Declaration(const ToolFunction& function) {
  std::string text = Comment(function.description) + "type " + function.name + " = ";
  const Json schema = Json::parse(ParametersOf(function), nullptr, false);
  if (!schema.is_object() || !HasProperties(schema)) return text + "() => any;\n\n";
  return text + "(_: " + Comment(TextOf(schema, "description")) + ObjectType(schema, 0) +
         ") => any;\n\n";
}

}  // namespace

std::string DescribeNamespace(const ToolNamespace& tools) {
  std::string text = "## " + tools.name + "\n\n";
  if (tools.functions.empty()) return text + tools.description;
  text += Comment(tools.description) + "namespace " + tools.name + " {\n\n";
  for (const ToolFunction& function : tools.functions) text += Declaration(function);
  return text + "} // namespace " + tools.name;
}

}  // namespace hearth
