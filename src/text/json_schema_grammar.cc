#include "text/json_schema_grammar.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/json_grammar_parts.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kWhere[] = "JSON schema";
constexpr int kMaxDepth = 60;       // of schemas in schemas
constexpr int kMaxJsonDepth = 500;  // of values in them
constexpr int64_t kLargest = 999'999'999'999'999;

const std::set<std::string> kDescribing = {"title",       "description", "default",  "examples",
                                           "$schema",     "$id",         "$comment", "$defs",
                                           "definitions", "deprecated",  "readOnly", "writeOnly"};

[[noreturn]] void Invalid(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, kWhere, what);
}

[[noreturn]] void Unsupported(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, kWhere, what);
}

class SchemaCompiler {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = GrammarBuilder::Sequence;

  explicit SchemaCompiler(const Json& root) : root_(root), parts_(builder_) {}

  Grammar Run() { return builder_.Build(Compile(root_, 0).index); }

 private:
  // A rule for the schema.
  Symbol Compile(const Json& schema, int depth) {
    if (depth > kMaxDepth) Unsupported("it is nested too deeply");
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) Unsupported("the schema false, which allows nothing");
      return builder_.AnyOf({{parts_.value()}});
    }
    if (!schema.is_object()) Invalid("a schema must be an object or true");
    if (schema.contains("$ref")) return Reference(schema, depth);
    for (const char* name : {"enum", "const"}) {
      if (schema.contains(name)) return Literals(schema, name);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      if (schema.contains(name)) return Alternatives(schema, name, depth);
    }
    std::vector<Sequence> types;
    for (const std::string& type : Types(schema)) types.push_back({OfType(schema, type, depth)});
    CheckNames(schema, {"type", "properties", "required", "additionalProperties", "items",
                        "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum",
                        "exclusiveMinimum", "exclusiveMaximum"});
    return builder_.AnyOf(types);
  }

  static void CheckNames(const Json& schema, const std::set<std::string>& known) {
    for (const auto& [name, value] : schema.items()) {
      if (known.count(name) == 0 && kDescribing.count(name) == 0) {
        Unsupported("'" + Printable(name) + "' is not supported here");
      }
    }
  }

  static std::vector<std::string> Types(const Json& schema) {
    static const std::vector<std::string> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};
    std::vector<std::string> types;
    if (!schema.contains("type")) {
      if (schema.contains("properties")) return {"object"};
      if (schema.contains("items")) return {"array"};
      return {"any"};
    }
    const Json& type = schema["type"];
    for (const Json& name : type.is_array() ? type : Json::array({type})) {
      if (!name.is_string() ||
          std::count(kTypes.begin(), kTypes.end(), name.get<std::string>()) == 0) {
        Invalid("'type' names no type of JSON");
      }
      types.push_back(name);
    }
    if (types.empty()) Invalid("'type' is empty");
    return types;
  }

  Symbol OfType(const Json& schema, const std::string& type, int depth) {
    if (type == "object") return Object(schema, depth);
    if (type == "array") return Array(schema, depth);
    if (type == "string") return String(schema);
    if (type == "integer") return Integer(schema);
    if (type == "number") {
      for (const char* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
        if (schema.contains(name) && Types(schema).size() == 1) {
          Unsupported("'" + std::string(name) + "' is supported for integers only");
        }
      }
      return parts_.number();
    }
    if (type == "boolean") {
      return builder_.AnyOf({builder_.Literal("true"), builder_.Literal("false")});
    }
    if (type == "null") return builder_.AnyOf({builder_.Literal("null")});
    for (const auto& [name, value] : schema.items()) {
      if (kDescribing.count(name) == 0) Unsupported("'" + Printable(name) + "' without a 'type'");
    }
    return parts_.value();
  }

  // A count, or `otherwise` where it is not there.
  static int64_t Count(const Json& schema, const char* name, int64_t otherwise) {
    constexpr int64_t kMaxCount = 10'000;
    if (!schema.contains(name)) return otherwise;
    const Json& value = schema[name];
    if (!value.is_number_integer() || value.get<double>() < 0)
      Invalid("'" + std::string(name) + "' must be a count");
    if (value.get<double>() > kMaxCount)
      Unsupported("'" + std::string(name) + "' is larger than 10000");
    return value.get<int64_t>();
  }

  static std::pair<int64_t, int64_t> Counts(const Json& schema, const char* min, const char* max) {
    const std::pair counts(Count(schema, min, 0), Count(schema, max, -1));
    if (counts.second >= 0 && counts.second < counts.first) {
      Invalid("'" + std::string(max) + "' is less than '" + min + "'");
    }
    return counts;
  }

  Symbol String(const Json& schema) {
    const auto [min, max] = Counts(schema, "minLength", "maxLength");
    return min == 0 && max < 0 ? parts_.string() : parts_.string_of(min, max);
  }

  static std::optional<int64_t> Bound(const Json& schema, const char* name) {
    if (!schema.contains(name)) return std::nullopt;
    const Json& value = schema[name];
    if (!value.is_number_integer()) Unsupported("'" + std::string(name) + "' must be an integer");
    const double number = value.get<double>();
    if (number > static_cast<double>(kLargest) || number < -static_cast<double>(kLargest)) {
      Unsupported("'" + std::string(name) + "' has more than 15 digits");
    }
    return value.get<int64_t>();
  }

  Symbol Integer(const Json& schema) {
    int64_t low = Bound(schema, "minimum").value_or(-kLargest);
    int64_t high = Bound(schema, "maximum").value_or(kLargest);
    if (const auto bound = Bound(schema, "exclusiveMinimum")) low = std::max(low, *bound + 1);
    if (const auto bound = Bound(schema, "exclusiveMaximum")) high = std::min(high, *bound - 1);
    if (low > high) Invalid("no integer lies between its bounds");
    if (low == -kLargest && high == kLargest) return parts_.integer();
    return parts_.integers_between(low, high);
  }

  Symbol Array(const Json& schema, int depth) {
    const auto [min, max] = Counts(schema, "minItems", "maxItems");
    const Symbol item =
        schema.contains("items") ? Compile(schema["items"], depth + 1) : parts_.value();
    return builder_.AnyOf({parts_.list('[', ']', {item}, min, max)});
  }

  static std::set<std::string> RequiredNames(const Json& schema) {
    std::set<std::string> names;
    if (!schema.contains("required")) return names;
    if (!schema["required"].is_array()) Invalid("'required' must be a list");
    for (const Json& name : schema["required"]) {
      if (!name.is_string()) Invalid("'required' must be a list of names");
      names.insert(name);
    }
    return names;
  }

  Symbol Object(const Json& schema, int depth) {
    const Json properties = schema.value("properties", Json::object());
    if (!properties.is_object()) Invalid("'properties' must be an object");
    const std::set<std::string> required = RequiredNames(schema);
    std::set<std::string> names;
    std::vector<std::pair<Sequence, bool>> members;  // and whether it must be there
    for (const auto& [name, property] : properties.items()) {
      names.insert(name);
      Sequence member = builder_.Literal(Json(name).dump());
      for (const Symbol& symbol :
           {builder_.Byte(':'), parts_.space(), Compile(property, depth + 1)}) {
        member.push_back(symbol);
      }
      members.emplace_back(std::move(member), required.count(name) > 0);
    }
    for (const std::string& name : required) {
      if (names.count(name) == 0)
        Unsupported("'required' names '" + Printable(name) + "', which is no property");
    }
    // From the last member to the first: what may follow, with and without a member before it.
    const Symbol end = builder_.AnyOf({{parts_.space(), builder_.Byte('}')}});
    Symbol after_some = builder_.AnyOf({{end}});
    Symbol after_none = builder_.AnyOf({{builder_.Byte('}')}});
    AddOthers(schema, names, depth, after_some, after_none);
    for (size_t i = members.size(); i-- > 0;) {
      auto& [member, is_required] = members[i];
      Sequence first = member;
      first.push_back(after_some);
      Sequence next = {builder_.Byte(','), parts_.space()};
      next.insert(next.end(), first.begin(), first.end());
      std::vector<Sequence> some = {next};
      std::vector<Sequence> none = {first};
      if (!is_required) {
        some.push_back({after_some});
        none.push_back({after_none});
      }
      after_some = builder_.AnyOf(some);
      after_none = builder_.AnyOf(none);
    }
    return builder_.AnyOf({{builder_.Byte('{'), parts_.space(), after_none}});
  }

  // Members that are no properties, at the end of an object.
  void AddOthers(const Json& schema, const std::set<std::string>& names, int depth,
                 Symbol& after_some, Symbol& after_none) {
    const bool anything =
        !schema.contains("properties") && !schema.contains("additionalProperties");
    const Json others = schema.value("additionalProperties", Json(anything));
    if (others == Json(false)) return;
    const Symbol value = Compile(others, depth + 1);
    const Sequence member = {parts_.other_key(names), builder_.Byte(':'), parts_.space(), value};
    Sequence next = {builder_.Byte(','), parts_.space()};
    next.insert(next.end(), member.begin(), member.end());
    const Symbol more = builder_.Repeat(next, 0, -1);
    const Symbol end = after_some;
    after_some = builder_.AnyOf({{more, end}});
    Sequence first = member;
    first.push_back(after_some);
    after_none = builder_.AnyOf({first, {after_none}});
  }

  Symbol Literals(const Json& schema, const char* name) {
    CheckNames(schema, {"type", name});
    const Json values = std::string(name) == "const" ? Json::array({schema[name]}) : schema[name];
    if (!values.is_array() || values.empty()) Invalid("'enum' must be a list of values");
    std::vector<Sequence> literals;
    for (const Json& value : values) literals.push_back(builder_.Literal(value.dump()));
    return builder_.AnyOf(literals);
  }

  Symbol Alternatives(const Json& schema, const char* name, int depth) {
    CheckNames(schema, {name});
    const Json& schemas = schema[name];
    if (!schemas.is_array() || schemas.empty()) {
      Invalid("'" + std::string(name) + "' must be a list of schemas");
    }
    if (std::string(name) == "oneOf") CheckDisjoint(schemas);
    std::vector<Sequence> alternatives;
    for (const Json& alternative : schemas)
      alternatives.push_back({Compile(alternative, depth + 1)});
    return builder_.AnyOf(alternatives);
  }

  // Throws unless every two of the schemas differ in their types, or in what they say a required
  // property is.
  void CheckDisjoint(const Json& schemas) const {
    for (size_t a = 0; a < schemas.size(); ++a) {
      for (size_t b = a + 1; b < schemas.size(); ++b) {
        if (!AreDisjoint(schemas[a], schemas[b])) {
          Unsupported("'oneOf' of schemas that may allow the same document; try 'anyOf'");
        }
      }
    }
  }

  static bool HasLiterals(const Json& schema) {
    return schema.is_object() && (schema.contains("const") || schema.contains("enum"));
  }

  static bool LiteralsDiffer(const Json& a, const Json& b) {
    const auto values = [](const Json& schema) {
      return schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
    };
    for (const Json& value : values(a)) {
      for (const Json& other : values(b)) {
        if (value == other) return false;
      }
    }
    return true;
  }

  static bool AreDisjoint(const Json& a, const Json& b) {
    if (!a.is_object() || !b.is_object()) return false;
    if (HasLiterals(a) && HasLiterals(b)) return LiteralsDiffer(a, b);
    for (const Json* schema : {&a, &b}) {
      for (const char* name : {"$ref", "anyOf", "oneOf", "enum", "const"}) {
        if (schema->contains(name)) return false;
      }
    }
    const auto of_a = Types(a);
    const auto of_b = Types(b);
    const auto overlap = [](const std::string& x, const std::string& y) {
      const auto numeric = [](const std::string& t) { return t == "number" || t == "integer"; };
      return x == y || x == "any" || y == "any" || (numeric(x) && numeric(y));
    };
    const bool types_differ = std::none_of(of_a.begin(), of_a.end(), [&](const std::string& x) {
      return std::any_of(of_b.begin(), of_b.end(),
                         [&](const std::string& y) { return overlap(x, y); });
    });
    if (types_differ) return true;
    if (of_a != std::vector<std::string>{"object"} || of_b != of_a) return false;
    const std::set<std::string> required = RequiredNames(b);
    for (const std::string& name : RequiredNames(a)) {
      if (required.count(name) == 0) continue;
      const Json of_first = a.value("properties", Json::object()).value(name, Json());
      const Json of_second = b.value("properties", Json::object()).value(name, Json());
      if (HasLiterals(of_first) && HasLiterals(of_second) && LiteralsDiffer(of_first, of_second)) {
        return true;
      }
    }
    return false;
  }

  Symbol Reference(const Json& schema, int depth) {
    CheckNames(schema, {"$ref"});
    if (!schema["$ref"].is_string()) Invalid("'$ref' must be a text");
    const std::string path = schema["$ref"];
    const auto known = references_.find(path);
    if (known != references_.end()) return GrammarBuilder::Rule(known->second);
    const Json* target = nullptr;
    if (path == "#") target = &root_;
    for (const char* folder : {"$defs", "definitions"}) {
      const std::string prefix = "#/" + std::string(folder) + "/";
      if (path.rfind(prefix, 0) != 0 || !root_.is_object() || !root_.contains(folder)) continue;
      const Json& definitions = root_[folder];
      const std::string name = path.substr(prefix.size());
      if (definitions.is_object() && definitions.contains(name)) target = &definitions[name];
    }
    if (target == nullptr) Unsupported("'$ref' to '" + Printable(path) + "'");
    const uint32_t rule = builder_.NewRule();
    references_.emplace(path, rule);
    builder_.AddAlternative(rule, {Compile(*target, depth + 1)});
    return GrammarBuilder::Rule(rule);
  }

  const Json& root_;
  GrammarBuilder builder_;
  JsonGrammarParts parts_;
  std::map<std::string, uint32_t> references_;
};

}  // namespace

std::shared_ptr<const Grammar> JsonObjectGrammar() {
  GrammarBuilder builder;
  const JsonGrammarParts parts(builder);
  return std::make_shared<const Grammar>(builder.Build(parts.object().index));
}

std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema) {
  const auto check_depth = [](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
    if (depth > kMaxJsonDepth) Unsupported("it is nested too deeply");
    return true;
  };
  const Json json = Json::parse(schema, check_depth, false);
  if (json.is_discarded()) Invalid("it is not valid JSON");
  return std::make_shared<const Grammar>(SchemaCompiler(json).Run());
}

}  // namespace hearth
