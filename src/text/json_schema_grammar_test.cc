// Whatever is written under a grammar is JSON of its schema, and plain documents can be written.
#include "text/json_schema_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/test_json_walk.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

TEST(JsonGrammar, RandomWalksAreJson) {
  std::mt19937 random(1);
  const auto grammar = JsonObjectGrammar();
  for (int i = 0; i < 40; ++i) {
    const std::string text = RandomJson(grammar, random);
    const Json json = Json::parse(text, nullptr, false);
    EXPECT_TRUE(json.is_object()) << text;
  }
}

TEST(JsonGrammar, TakesJsonObjectsAndNothingElse) {
  const auto grammar = JsonObjectGrammar();
  for (const char* text : {"{}", R"({"a": 1})", R"({"a":[1,-2.5e+3,true,false,null,"\u00e9\n"]})",
                           R"({"a": {"b": {}}, "c": []})", "{\n  \"a\": 1,\n  \"b\": 2\n}",
                           "{\"\xC3\xA9\": \"\xF0\x9F\x98\x80\"}"}) {
    EXPECT_TRUE(AcceptsJson(grammar, text)) << text;
  }
  for (const char* text : {"", "[]", "{", R"({"a"})", R"({"a": 01})", R"({"a": 1,})", R"({a: 1})",
                           R"({"a": "\x"})", "{\"\xC3\": 1}", R"({"a": 1}})", "{\"a\n\": 1}"}) {
    EXPECT_FALSE(AcceptsJson(grammar, text)) << text;
  }
}

TEST(JsonSchemaGrammar, TooManyValuesToCompareAreRefused) {
  Json values = Json::array();
  for (int i = 0; i < 4000; ++i) values.push_back(i);
  Json schema = {{"$defs", {{"v", {{"enum", values}}}, {"w", {{"enum", values}}}}},
                 {"allOf", Json::array()}};
  for (int i = 0; i < 100; ++i)
    schema["allOf"].push_back({{"$ref", i % 2 == 0 ? "#/$defs/v" : "#/$defs/w"}});
  EXPECT_THROW(JsonSchemaGrammar(schema.dump()), Error);
}

TEST(JsonSchemaGrammar, ReferencesPointAnywhereIntoTheSchema) {
  for (const char* reference : {"#/properties/a", "#/$defs/x~1y~0z", "#/%24defs/x%7E1y%7e0z",
                                "#/$defs/list/anyOf/1", "#/$defs/%C3%A9", "#/$defs/"}) {
    const Json one = {{"const", 1}};
    const Json schema = {
        {"type", "object"},
        {"properties", {{"a", one}, {"b", {{"$ref", reference}}}}},
        {"$defs",
         {{"x/y~z", one}, {"list", {{"anyOf", {false, one}}}}, {"\u00e9", one}, {"", one}}}};
    const auto grammar = JsonSchemaGrammar(schema.dump());
    EXPECT_TRUE(AcceptsJson(grammar, R"({"a": 1, "b": 1})")) << reference;
    EXPECT_FALSE(AcceptsJson(grammar, R"({"b": 2})")) << reference;
  }
}

Json TaggedObjects(int count, const std::string& tag) {
  Json schemas = Json::array();
  for (int i = 0; i < count; ++i) {
    Json& schema = schemas.emplace_back(Json{{"type", "object"}, {"required", {tag}}});
    for (int k = 0; k < 20; ++k) schema["properties"]["p" + std::to_string(k)]["type"] = "integer";
    schema["properties"][tag] = {{"const", i}};
  }
  return schemas;
}

// More than are compared each with each.
TEST(JsonSchemaGrammar, OneOfManyObjectsIsToldByATag) {
  Json schema = {{"oneOf", TaggedObjects(1000, "t")}};
  schema["oneOf"].push_back({{"type", "null"}});
  const auto grammar = JsonSchemaGrammar(schema.dump());
  EXPECT_TRUE(AcceptsJson(grammar, R"({"p1": 5, "t": 999})"));
  EXPECT_TRUE(AcceptsJson(grammar, "null"));
  EXPECT_FALSE(AcceptsJson(grammar, R"({"t": 1000})"));
  schema["oneOf"][7]["properties"]["t"]["const"] = 8;
  EXPECT_THROW(JsonSchemaGrammar(schema.dump()), Error) << "two of one tag";
  schema = {{"oneOf", TaggedObjects(150, "t")}};
  for (const Json& other : TaggedObjects(150, "u")) schema["oneOf"].push_back(other);
  EXPECT_THROW(JsonSchemaGrammar(schema.dump()), Error) << "too many to compare";
  Json pairs = TaggedObjects(3, "t");
  for (Json& one : pairs) {
    one["properties"]["u"] = {{"const", 5}};
    one["required"].push_back("u");
  }
  pairs[2]["properties"]["t"] = {{"type", "integer"}};
  pairs[2]["properties"]["u"] = {{"const", 6}};
  EXPECT_NO_THROW(JsonSchemaGrammar(Json{{"oneOf", pairs}}.dump())) << "one by t, two by u";
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

const std::vector<SchemaCase>& SchemaCases() {
  static const std::vector<SchemaCase> cases = {
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
           "c": {"type": "boolean"}}, "required": ["b"]})",
       {R"({"b": "x"})", R"({"a": 1, "b": ""})", R"({"b":"x","c":true})",
        R"({"a":-1,"b":"","c":false})"},
       {"{}", R"({"a": 1})", R"({"b": 1})", R"({"b": "x", "d": 1})", R"({"a": 1.5, "b": ""})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties":
           {"type": "integer"}})",
       {"{}", R"({"a": null})", R"({"a": null, "b": 1, "ab": 2})", R"({"": 1})", R"({"c": 3})"},
       {R"({"a": 1})", R"({"b": "x"})", R"({"b": 1, "a": 2})"}},
      {R"({"type": "array", "items": {"enum": ["x", 1, null]}, "minItems": 1, "maxItems": 3})",
       {R"(["x"])", R"([1, null, "x"])", "[1,1]"},
       {"[]", "[2]", "[1, 1, 1, 1]"}},
      {R"({"type": "integer", "minimum": -5, "maximum": 120})",
       {"0", "-5", "120", "99", "7", "-1"},
       {"-6", "121", "1000", "05", "-0", "1.0"}},
      {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 1235})",
       {"10", "99", "100", "999", "1000", "1199", "1200", "1234"},
       {"9", "1235", "2000", "12340"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", R"("a\n")"},
       {R"("a")", R"("abcd")", R"("")", "ab"}},
      {R"({"anyOf": [{"type": "number"}, {"const": {"a": [1, "é"]}}]})",
       {"1", "-2.5", "1e5", R"({"a":[1,"é"]})"},
       {"true", R"({"a":[1]})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                     {"type": "object", "properties": {"k": {"const": "b"}, "n": {"type": "null"}},
                      "required": ["k", "n"]}]})",
       {R"({"k": "a"})", R"({"k": "b", "n": null})"},
       {R"({"k": "b"})", R"({"k": "c"})"}},
      {R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v":
           {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
           "required": ["v"]}}})",
       {R"({"v": 1})", R"({"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]})"},
       {R"({"kids": []})", R"({"v": 1, "kids": [1]})"}},
      {R"({"type": ["string", "null"]})", {"null", R"("x")"}, {"1", "nul"}},
      {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 2},
           "b": {"type": "null"}}, "required": ["a"]}, {"type": "object", "properties": {"c":
           {"type": "boolean"}, "a": {"type": "number", "maximum": 5}}, "required": ["c"]}]})",
       {R"({"a":2,"c":true})", R"({"a": 5, "b": null, "c": false})"},
       {R"({"a":1,"c":true})", R"({"a":6,"c":true})", R"({"c":true})", R"({"a":2})"}},
      {R"({"description": "only says more", "allOf": [{"$ref": "#/$defs/tree"}], "$defs": {"tree":
           {"type": "object", "properties": {"kids": {"type": "array", "items": {"allOf":
           [{"$ref": "#/$defs/tree"}]}}}}}})",
       {"{}", R"({"kids":[{"kids":[]}]})"},
       {R"({"kids":[1]})"}},
      {R"({"allOf": [{"enum": [1, "a", null]}, {"enum": ["a", 1, 2]}, {"type": "integer"}]})",
       {"1"},
       {"2", "null", "\"a\""}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
           "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a": 1})", R"({"b": null})", R"({"a": 1, "b": null})"},
       {"{}", R"({"a": null})", "[]"}},
      {R"({"type": ["integer", "null"], "oneOf": [{"type": "number"}, {"type": "null"}]})",
       {"1", "null"},
       {"1.5", "\"a\""}},
      {R"({"type": "object"})", {"{}", R"({"x": [1, {"y": null}]})"}, {"[]"}},
      {"true", {"1", "null", "[[]]", "{}"}, {"nope", ""}},
  };
  return cases;
}

TEST(JsonSchemaGrammar, TakesPlainDocumentsThatAreValidOnly) {
  for (const SchemaCase& c : SchemaCases()) {
    const auto grammar = JsonSchemaGrammar(c.schema);
    for (const char* text : c.valid)
      EXPECT_TRUE(AcceptsJson(grammar, text)) << c.schema << "\n" << text;
    for (const char* text : c.invalid) {
      EXPECT_FALSE(AcceptsJson(grammar, text)) << c.schema << "\n" << text;
    }
  }
}

bool HasRequired(const Json& schema, const Json& value) {
  const Json names = schema.value("required", Json::array());
  return !value.is_object() || std::all_of(names.begin(), names.end(), [&](const Json& name) {
    return value.contains(name.get<std::string>());
  });
}

// A validator of its own for what the cases use.
bool IsValid(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_object() && schema.contains("allOf")) {
    return std::all_of(schema["allOf"].begin(), schema["allOf"].end(),
                       [&](const Json& part) { return IsValid(part, value, root); });
  }
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) return IsValid(root["$defs"]["tree"], value, root);
  if (!HasRequired(schema, value)) return false;
  if (schema.contains("const")) return value == schema["const"];
  if (schema.contains("enum")) {
    return std::count(schema["enum"].begin(), schema["enum"].end(), value) > 0;
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    if (!schema.contains(name)) continue;
    int64_t count = 0;
    for (const Json& part : schema[name]) count += IsValid(part, value, root) ? 1 : 0;
    if (count == 0 || (std::string(name) == "oneOf" && count > 1)) return false;
  }
  if (!schema.contains("type")) return true;
  const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
  const bool has_type = std::any_of(types.begin(), types.end(), [&](const Json& type) {
    return type == value.type_name() || (type == "integer" && value.is_number_integer());
  });
  if (!has_type) return false;
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    return number >= schema.value("minimum", INT64_MIN) &&
           number <= schema.value("maximum", INT64_MAX) &&
           number > schema.value("exclusiveMinimum", INT64_MIN) &&
           number < schema.value("exclusiveMaximum", INT64_MAX);
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0})) return false;
    if (value.size() > schema.value("maxItems", size_t{1} << 40)) return false;
    return std::all_of(value.begin(), value.end(), [&](const Json& item) {
      return IsValid(schema.value("items", Json(true)), item, root);
    });
  }
  if (!value.is_object()) return true;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, member] : value.items()) {
    const Json& part = properties.contains(name) ? properties[name]
                                                 : schema.value("additionalProperties", Json(true));
    if (!IsValid(part, member, root)) return false;
  }
  return true;
}

TEST(JsonSchemaGrammar, RandomWalksAreValid) {
  std::mt19937 random(2);
  for (const SchemaCase& c : SchemaCases()) {
    const auto grammar = JsonSchemaGrammar(c.schema);
    const Json schema = Json::parse(c.schema);
    for (int i = 0; i < 12; ++i) {
      const std::string text = RandomJson(grammar, random);
      const Json json = Json::parse(text, nullptr, false);
      EXPECT_FALSE(json.is_discarded()) << c.schema << "\n" << text;
      EXPECT_TRUE(IsValid(schema, json, schema)) << c.schema << "\n" << text;
    }
  }
}

TEST(JsonSchemaGrammar, IntegersBetweenAreExactlyThose) {
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const auto spread = static_cast<int>(random() % 1500) + 1;
    const int low = static_cast<int>(random() % 2000) - 1000;
    const int high = low + static_cast<int>(random() % static_cast<unsigned>(spread));
    const Json schema = {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
    const auto grammar = JsonSchemaGrammar(schema.dump());
    for (int number = low - 12; number <= high + 12; ++number) {
      EXPECT_EQ(AcceptsJson(grammar, std::to_string(number)), number >= low && number <= high)
          << schema << " " << number;
    }
  }
}

TEST(JsonSchemaGrammar, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", "'pattern' beside"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "'pattern' beside 'format'"},
      {R"({"type": "string", "pattern": 5})", "'pattern' must be a text"},
      {R"({"pattern": "a"})", "'pattern' without a 'type'"},
      {R"({"type": "number", "multipleOf": 2})", "'multipleOf' is not supported"},
      {R"({"type": "number", "minimum": 1})", "'minimum' is supported for integers only"},
      {R"({"allOf": []})", "'allOf' must be a list"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "no type in common"},
      {R"({"allOf": [{"enum": [1]}, {"enum": [2]}]})", "no value in common"},
      {R"({"allOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]},
           {"type": "object", "properties": {}, "additionalProperties": false}]})",
       "requires 'a' and forbids it"},
      {R"({"allOf": [{"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "string"}]}]})",
       "each have 'anyOf'"},
      {R"({"allOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]})",
       "each have 'pattern'"},
      {R"({"allOf": [false, {"type": "null"}]})", "allows nothing"},
      {R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})", "nested too deeply"},
      {R"({"enum": ["x"], "type": "integer"})", "no value of its 'type'"},
      {R"({"enum": ["x"], "minLength": 2})", "'minLength' beside 'enum' is not supported"},
      {R"({"$ref": "#/$defs/a", "type": "null", "$defs": {"a": {}}})",
       "'type' beside '$ref' is not supported"},
      {R"({"type": "string", "anyOf": [{"type": "null"}]})", "no type in common"},
      {R"({"$ref": "#/$defs/b", "$defs": {"a": {}}})", "'$ref' to '#/$defs/b', which is not there"},
      {R"({"items": {"$ref": "#/$defs/1"}, "$defs": [{"type": "null"}]})", "which is not there"},
      {R"({"properties": {"a/b": {"items": {"anyOf": [{}, {"type": "number", "minimum": 1}]}}}})",
       "for integers only (at '#/properties/a~1b/items/anyOf/1')"},
      {R"({"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}, "$defs": {"a": {"items": {"x": 1}}}})",
       "(at '#/$defs/a/items')"},
      {R"({"type": "thing"})", "names no type"},
      {R"({"$ref": "http://x"})", "'$ref' to 'http://x'"},
      {R"({"$ref": "#"})", "begins with itself"},
      {R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
       "begins with itself"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "'oneOf'"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "is less than"},
      {R"({"type": "array", "minItems": 20000})", "larger than 10000"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "no integer"},
      {R"({"enum": []})", "'enum' must be a list"},
      {R"({"type": "object", "required": ["x"]})", "which is no property"},
      {"false", "allows nothing"},
      {"{", "not valid JSON"},
      {"[]", "must be an object"},
  };
  for (const auto& [schema, words] : cases) {
    try {
      JsonSchemaGrammar(schema);
      ADD_FAILURE() << schema;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words)) << schema;
    }
  }
}

TEST(JsonSchemaGrammar, WhatIsTooLargeOrTooDeepIsRefused) {
  // Every level twice what the one below says: counted, not tried.
  Json doubling = {{"$ref", "#/$defs/d40"}};
  for (int i = 1; i <= 40; ++i) {
    const Json below = {{"$ref", "#/$defs/d" + std::to_string(i - 1)}};
    const Json more = {{"properties", {{"p" + std::to_string(i), {{"type", "null"}}}}}};
    doubling["$defs"]["d" + std::to_string(i)] = {{"allOf", {below, more, below}}};
  }
  doubling["$defs"]["d0"] = {{"type", "object"}, {"properties", Json::object()}};
  EXPECT_THROW(JsonSchemaGrammar(doubling.dump()), Error);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"items":)";
  EXPECT_THROW(JsonSchemaGrammar(deep), Error);
  EXPECT_THROW(JsonSchemaGrammar(R"({"const": )" + std::string(100'000, '[') +
                                 std::string(100'000, ']') + "}"),
               Error);
}

}  // namespace
}  // namespace hearth
