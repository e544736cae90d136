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
#include "plan/json_reader.h"
#include "text/json_grammar_parts.h"
#include "text/json_schema_disjoint.h"
#include "text/json_schema_merge.h"
#include "text/json_schema_parts.h"
#include "text/json_string_pattern.h"

namespace hearth {
namespace {

using Json = SchemaJson;

constexpr int kMaxDepth = 60;       // of schemas in schemas
constexpr int kMaxJsonDepth = 500;  // of values in them
constexpr int64_t kLargest = 999'999'999'999'999;

// A name as it stands in a JSON pointer.
std::string Escaped(const std::string& name) {
  std::string step;
  for (const char letter : name) {
    if (letter == '~' || letter == '/') {
      step += letter == '~' ? "~0" : "~1";
    } else {
      step += letter;
    }
  }
  return step;
}

class SchemaCompiler {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = GrammarBuilder::Sequence;

  SchemaCompiler(const Json& root, GrammarBuilder& builder, JsonGrammarParts& parts)
      : root_(root), merger_(root), builder_(builder), parts_(parts) {}

  Symbol Run(JsonKind kind) {
    try {
      return CompileRoot(kind);
    } catch (const Error& error) {
      FailAt(error, place_);
    }
  }
  Symbol RunPart(const Json& schema) { return Compile(schema, 0); }

 private:
  Symbol CompileRoot(JsonKind kind) {
    if (kind == JsonKind::kAny) return Compile(root_, 0);
    if (SaysNothing(root_)) return parts_.object();
    if (!IsOfObjects(root_, 0))
      UnsupportedSchema("only a schema of type 'object' can describe arguments");
    return Compile(root_, 0);
  }

  // A rule for what is that far inside of the schema: a name, or names with '/' between.
  Symbol CompileInside(const std::string& step, const Json& schema, int depth) {
    const size_t length = place_.size();
    place_ += "/" + step;
    const Symbol symbol = Compile(schema, depth + 1);
    place_.resize(length);
    return symbol;
  }

  // A rule for the schema.
  Symbol Compile(const Json& schema, int depth) {
    if (depth > kMaxDepth) UnsupportedSchema("it is nested too deeply");
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) UnsupportedSchema("the schema false, which allows nothing");
      return builder_.AnyOf({{parts_.value()}});
    }
    if (!schema.is_object()) InvalidSchema("a schema must be an object or true");
    if (schema.contains("allOf")) return Compile(merger_.Merged(schema), depth + 1);
    if (schema.contains("$ref")) return Reference(schema, depth);
    for (const char* name : {"enum", "const"}) {
      if (schema.contains(name)) return Literals(schema, name);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      if (schema.contains(name)) return Alternatives(schema, name, depth);
    }
    std::vector<Sequence> types;
    for (const std::string& type : SchemaTypes(schema))
      types.push_back({OfType(schema, type, depth)});
    CheckNames(schema,
               {"type", "properties", "required", "additionalProperties", "items", "minItems",
                "maxItems", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
                "exclusiveMaximum", "pattern", "format"},
               "is");
    return builder_.AnyOf(types);
  }

  // beside: how the message goes on, of what is not known.
  static void CheckNames(const Json& schema, const std::set<std::string>& known,
                         const std::string& beside) {
    for (const auto& [name, value] : schema.items()) {
      if (known.count(name) == 0 && !OnlyDescribes(name)) {
        UnsupportedSchema("'" + Printable(name) + "' " + beside + " not supported");
      }
    }
  }

  Symbol OfType(const Json& schema, const std::string& type, int depth) {
    if (type == "object") return Object(schema, depth);
    if (type == "array") return Array(schema, depth);
    if (type == "string") return String(schema);
    if (type == "integer") return Integer(schema);
    if (type == "number") {
      for (const char* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
        if (schema.contains(name) && SchemaTypes(schema).size() == 1) {
          UnsupportedSchema("'" + std::string(name) + "' is supported for integers only");
        }
      }
      return parts_.number();
    }
    if (type == "boolean") {
      return builder_.AnyOf({builder_.Literal("true"), builder_.Literal("false")});
    }
    if (type == "null") return builder_.AnyOf({builder_.Literal("null")});
    for (const auto& [name, value] : schema.items()) {
      if (!OnlyDescribes(name)) UnsupportedSchema("'" + Printable(name) + "' without a 'type'");
    }
    return parts_.value();
  }

  // A count, or `otherwise` where it is not there.
  static int64_t Count(const Json& schema, const char* name, int64_t otherwise) {
    constexpr int64_t kMaxCount = 10'000;
    if (!schema.contains(name)) return otherwise;
    const Json& value = schema[name];
    if (!value.is_number_integer() || value.get<double>() < 0)
      InvalidSchema("'" + std::string(name) + "' must be a count");
    if (value.get<double>() > kMaxCount)
      UnsupportedSchema("'" + std::string(name) + "' is larger than 10000");
    return value.get<int64_t>();
  }

  static std::pair<int64_t, int64_t> Counts(const Json& schema, const char* min, const char* max) {
    const std::pair counts(Count(schema, min, 0), Count(schema, max, -1));
    if (counts.second >= 0 && counts.second < counts.first) {
      InvalidSchema("'" + std::string(max) + "' is less than '" + min + "'");
    }
    return counts;
  }

  Symbol String(const Json& schema) {
    const auto [min, max] = Counts(schema, "minLength", "maxLength");
    const bool is_bounded = min > 0 || max >= 0;
    for (const char* name : {"pattern", "format"}) {
      if (!schema.contains(name)) continue;
      const std::string word = "'" + std::string(name) + "'";
      if (!schema[name].is_string()) InvalidSchema(word + " must be a text");
      if (is_bounded) UnsupportedSchema(word + " beside 'minLength' or 'maxLength'");
    }
    if (schema.contains("pattern")) {
      if (schema.contains("format")) UnsupportedSchema("'pattern' beside 'format'");
      return StringOfPattern(builder_, parts_, schema["pattern"].get<std::string>());
    }
    if (schema.contains("format")) {
      return StringOfFormat(builder_, parts_, schema["format"].get<std::string>());
    }
    return is_bounded ? parts_.string_of(min, max) : parts_.string();
  }

  static std::optional<int64_t> Bound(const Json& schema, const char* name) {
    if (!schema.contains(name)) return std::nullopt;
    const Json& value = schema[name];
    if (!value.is_number_integer())
      UnsupportedSchema("'" + std::string(name) + "' must be an integer");
    const double number = value.get<double>();
    if (number > static_cast<double>(kLargest) || number < -static_cast<double>(kLargest)) {
      UnsupportedSchema("'" + std::string(name) + "' has more than 15 digits");
    }
    return value.get<int64_t>();
  }

  Symbol Integer(const Json& schema) {
    int64_t low = Bound(schema, "minimum").value_or(-kLargest);
    int64_t high = Bound(schema, "maximum").value_or(kLargest);
    if (const auto bound = Bound(schema, "exclusiveMinimum")) low = std::max(low, *bound + 1);
    if (const auto bound = Bound(schema, "exclusiveMaximum")) high = std::min(high, *bound - 1);
    if (low > high) InvalidSchema("no integer lies between its bounds");
    if (low == -kLargest && high == kLargest) return parts_.integer();
    return parts_.integers_between(low, high);
  }

  Symbol Array(const Json& schema, int depth) {
    const auto [min, max] = Counts(schema, "minItems", "maxItems");
    const Symbol item =
        schema.contains("items") ? CompileInside("items", schema["items"], depth) : parts_.value();
    return builder_.AnyOf({parts_.list('[', ']', {item}, min, max)});
  }

  Symbol Object(const Json& schema, int depth) {
    static const Json kNone = Json::object();
    const Json& properties = schema.contains("properties") ? schema["properties"] : kNone;
    if (!properties.is_object()) InvalidSchema("'properties' must be an object");
    const std::set<std::string> required = RequiredNames(schema);
    std::set<std::string> names;
    std::vector<std::pair<Sequence, bool>> members;  // and whether it must be there
    for (const auto& [name, property] : properties.items()) {
      names.insert(name);
      Sequence member = builder_.Literal(Json(name).dump());
      for (const Symbol& symbol : {builder_.Byte(':'), parts_.space(),
                                   CompileInside("properties/" + Escaped(name), property, depth)}) {
        member.push_back(symbol);
      }
      members.emplace_back(std::move(member), required.count(name) > 0);
    }
    for (const std::string& name : required) {
      if (names.count(name) == 0)
        UnsupportedSchema("'required' names '" + Printable(name) + "', which is no property");
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
    const Symbol value = CompileInside("additionalProperties", others, depth);
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

  static bool HasType(const Json& value, const std::vector<std::string>& types) {
    return std::any_of(types.begin(), types.end(), [&](const std::string& type) {
      return type == value.type_name() || (type == "integer" && value.is_number_integer());
    });
  }

  Symbol Literals(const Json& schema, const char* name) {
    CheckNames(schema, {"type", name}, "beside '" + std::string(name) + "' is");
    const bool any_type = !schema.contains("type");
    const std::vector<std::string> types = SchemaTypes(schema);
    const Json values = std::string(name) == "const" ? Json::array({schema[name]}) : schema[name];
    if (!values.is_array() || values.empty()) InvalidSchema("'enum' must be a list of values");
    std::vector<Sequence> literals;
    for (const Json& value : values) {
      if (any_type || HasType(value, types)) literals.push_back(builder_.Literal(value.dump()));
    }
    if (literals.empty()) InvalidSchema("'" + std::string(name) + "' has no value of its 'type'");
    return builder_.AnyOf(literals);
  }

  Symbol Alternatives(const Json& schema, const char* name, int depth) {
    if (!schema[name].is_array() || schema[name].empty()) {
      InvalidSchema("'" + std::string(name) + "' must be a list of schemas");
    }
    const Json schemas = WithWhatIsBeside(schema, name);
    if (std::string(name) == "oneOf") CheckDisjoint(schemas);
    std::vector<Sequence> alternatives;
    for (size_t i = 0; i < schemas.size(); ++i) {
      const std::string step = std::string(name) + "/" + std::to_string(i);
      alternatives.push_back({CompileInside(step, schemas[i], depth)});
    }
    return builder_.AnyOf(alternatives);
  }

  // The schemas of "anyOf" or "oneOf", each with all else that the schema says.
  Json WithWhatIsBeside(const Json& schema, const char* name) {
    Json rest = Json::object();
    for (const auto& [other, value] : schema.items()) {
      if (other != name && !OnlyDescribes(other)) rest[other] = value;
    }
    Json schemas = schema[name];
    if (rest.empty()) return schemas;
    for (Json& alternative : schemas) {
      alternative = merger_.Merged({{"allOf", Json::array({rest, alternative})}});
    }
    return schemas;
  }

  Symbol Reference(const Json& schema, int depth) {
    CheckNames(schema, {"$ref"}, "beside '$ref' is");
    const Json& target = ReferencedSchema(root_, schema);
    const auto known = references_.find(&target);
    if (known != references_.end()) return GrammarBuilder::Rule(known->second);
    const uint32_t rule = builder_.NewRule();
    references_.emplace(&target, rule);
    const std::string from = std::exchange(place_, schema["$ref"].get<std::string>().substr(1));
    builder_.AddAlternative(rule, {Compile(target, depth + 1)});
    place_ = from;
    return GrammarBuilder::Rule(rule);
  }

  // Whether all its documents are objects, as far as it says so itself.
  bool IsOfObjects(const Json& schema, int depth) const {
    if (!schema.is_object() || depth > kMaxDepth) return false;
    if (schema.contains("$ref")) return IsOfObjects(ReferencedSchema(root_, schema), depth + 1);
    return SchemaTypes(schema) == std::vector<std::string>{"object"};
  }

  const Json& root_;
  SchemaMerger merger_;
  GrammarBuilder& builder_;
  JsonGrammarParts& parts_;
  std::map<const Json*, uint32_t> references_;  // by what they refer to
  std::string place_;  // a JSON pointer to what is compiled; into what is merged as if it were one
};

}  // namespace

std::shared_ptr<const Grammar> JsonObjectGrammar() {
  GrammarBuilder builder;
  const JsonGrammarParts parts(builder);
  return std::make_shared<const Grammar>(builder.Build(parts.object().index));
}

Grammar::Symbol AddJsonSchema(GrammarBuilder& builder, JsonGrammarParts& parts,
                              std::string_view schema, JsonKind kind) {
  const JsonLimits limits = {.most_levels = kMaxJsonDepth};
  const auto json =
      ReadJson<Json>(schema, limits, [](const std::string& why) { UnsupportedSchema(why); });
  if (json.is_discarded()) InvalidSchema("it is not valid JSON");
  return SchemaCompiler(json, builder, parts).Run(kind);
}

std::vector<Grammar::Symbol> AddJsonSchemaParts(GrammarBuilder& builder, JsonGrammarParts& parts,
                                                const SchemaJson& root,
                                                const std::vector<const SchemaJson*>& schemas) {
  SchemaCompiler compiler(root, builder, parts);
  std::vector<Grammar::Symbol> symbols;
  for (const SchemaJson* schema : schemas) symbols.push_back(compiler.RunPart(*schema));
  return symbols;
}

std::shared_ptr<const Grammar> JsonSchemaGrammar(std::string_view schema) {
  GrammarBuilder builder;
  JsonGrammarParts parts(builder);
  const Grammar::Symbol document = AddJsonSchema(builder, parts, schema, JsonKind::kAny);
  try {
    return std::make_shared<const Grammar>(builder.Build(document.index));
  } catch (const Error& error) {
    FailAt(error, "");
  }
}

}  // namespace hearth
