// Whatever is written under a grammar is JSON of its schema, and plain documents can be written.
#include "text/grammar/json_schema_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/grammar/test_json_walk.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

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
  Json schema = {{"oneOf", TaggedObjects(400, "t")}};
  schema["oneOf"].push_back({{"type", "null"}});
  const auto grammar = JsonSchemaGrammar(schema.dump());
  EXPECT_TRUE(AcceptsJson(grammar, R"({"p1": 5, "t": 399})"));
  EXPECT_TRUE(AcceptsJson(grammar, "null"));
  EXPECT_FALSE(AcceptsJson(grammar, R"({"t": 400})"));
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

// With names that the validator below does not know.
const std::vector<SchemaCase>& MoreSchemaCases() {
  static const std::vector<SchemaCase> cases = {
      // What is about one type holds beside others.
      {R"({"type": ["number", "null"], "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "null", "1.0", "0.999"},
       {"2", "-1", "-0.5", "1.01", "1e5", "180555505550555", "true"}},
      {R"({"type": ["integer", "string"], "maximum": 3, "maxLength": 2})",
       {"3", "-99", R"("ab")"},
       {"4", R"("abc")", "0.5"}},
      {R"({"type": ["array", "object"], "maxItems": 1, "items": {"type": "null"}, "required": ["a"],
           "properties": {"a": {"type": "boolean"}}})",
       {"[]", "[null]", R"({"a": true})"},
       {"[1]", "[null, null]", "{}", R"({"a": 1})"}},
      {R"({"anyOf": [{"type": "number"}, {"type": "null"}], "minimum": 5})",
       {"5", "7.25", "null"},
       {"4", "4.99", "-5"}},
      {R"({"$ref": "#/$defs/tree", "maximum": 3, "$defs": {"tree": {"type": ["number", "null"]}}})",
       {"3", "2.5", "null"},
       {"3.5", "4"}},
      {R"({"type": "number", "exclusiveMinimum": -0.5, "maximum": 12.25})",
       {"0", "-0.4", "-0.49", "12.25", "12.2", "11.999", "12"},
       {"-0.5", "-0.51", "-1", "12.26", "12.3", "13"}},
      {R"({"type": "integer", "minimum": 0.0, "maximum": 10.5})", {"0", "10"}, {"-1", "11", "1.0"}},
      {R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})",
       {"0", "-12", "999999999999999"},
       {"1.5", "9007199254740992"}},
      {R"({"type": "integer", "multipleOf": 7, "minimum": -20, "maximum": 20})",
       {"-14", "-7", "0", "14"},
       {"1", "21", "-21", "6"}},
      {R"({"type": "number", "multipleOf": 0.25})", {"1", "-3", "2.75", "0.5"}, {"0.3", "1.26"}},
      {R"({"enum": ["x1", "y22", 5, 5.0, null], "type": ["string", "integer"], "minLength": 3})",
       {R"("y22")", "5"},
       {R"("x1")", "null", "5.0"}},
      {R"({"type": "integer", "enum": [1.0, 2.5]})", {"1"}, {"2.5", "2"}},
      {R"({"const": "tea", "enum": ["tea", "milk"]})", {R"("tea")"}, {R"("milk")"}},
      {R"({"type": "object", "properties": {"a": {"not": {}}, "b": {"type": "null"}}})",
       {"{}", R"({"b": null})"},
       {R"({"a": 1})", R"({"a": null})"}},
      {R"({"type": "object", "required": ["x"], "properties": {"a": {"type": "null"}}})",
       {R"({"x": 1})", R"({"a": null, "x": []})"},
       {"{}", R"({"a": null})"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 1})",
       {"[1]", "[1, null]"},
       {"[]", "[null]", "[1, 2]", "[1, null, 3]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"},
           "minItems": 2, "maxItems": 3})",
       {"[1, true]", "[1, true, false]"},
       {"[1]", "[true, true]", "[1, true, true, true]"}},
      {R"({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true, "minItems": 1})",
       {R"(["a"])", R"(["a", "c"])", R"(["a","b","c"])"},
       {"[]", R"(["a", "a"])", R"(["d"])"}},
      {R"({"type": "object", "minProperties": 1, "maxProperties": 2, "properties":
           {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}})",
       {R"({"a":null})", R"({"b":null,"c":null})"},
       {"{}", R"({"a":null,"b":null,"c":null})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["k", "l"]}, "additionalProperties":
           {"type": "integer"}})",
       {"{}", R"({"k": 1})", R"({"k":1,"l":2})"},
       {R"({"m": 1})", R"({"k": "x"})"}},
      {R"({"type": "object", "patternProperties": {"^x[0-9]$": {"type": "null"}},
           "additionalProperties": false, "properties": {"a": {"type": "integer"}}})",
       {R"({"a":1,"x1":null})", R"({"x9":null,"x3":null})"},
       {R"({"x1": 1})", R"({"y": null})", R"({"x12": null})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
           "dependentRequired": {"a": ["b"]}})",
       {"{}", R"({"b":null})", R"({"a":null,"b":null})"},
       {R"({"a":null})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"l": {"type": "null"}}, "required": ["l"]},
                     {"type": "object", "properties": {"r": {"type": "null"}}, "required": ["r"]}]})",
       {R"({"l":null})", R"({"r":null})"},
       {"{}", R"({"l":null,"r":null})"}},
      {R"({"type": "object", "properties": {"l": {"type": "null"}, "r": {"type": "null"}},
           "oneOf": [{"required": ["l"]}, {"required": ["r"]}]})",
       {R"({"l":null})", R"({"r":null})"},
       {"{}", R"({"l":null,"r":null})"}},
      {R"({"oneOf": [{"type": "integer", "minimum": 80, "maximum": 89},
                     {"type": "integer", "minimum": 90}, {"type": "array", "items": {}}]})",
       {"80", "90", "[]"},
       {"79", "8"}},
      {R"({"type": "string", "pattern": "^[a-c]+$", "minLength": 2, "maxLength": 5})",
       {R"("ab")", R"("abcab")"},
       {R"("a")", R"("abcabc")", R"("xy")"}},
      {R"({"type": "string", "format": "date", "pattern": "^2024-[0-9-]*$"})",
       {R"("2024-02-03")"},
       {R"("2023-02-03")", R"("2024-")"}},
      {R"({"type": "string", "pattern": "^(?!\\s*$).{0,4}$"})",
       {R"("a")", R"(" b ")"},
       {R"("")", R"("  ")", R"("abcde")"}},
      {R"({"type": "string", "not": {"enum": ["no", "never"]}, "maxLength": 5})",
       {R"("yes")", R"("n")", R"("")"},
       {R"("no")", R"("never")", R"("always")"}},
      {R"({"type": "string", "format": "int32", "x-note": 1, "nullable": true})",
       {R"("any")"},
       {"null"}},
  };
  return cases;
}

TEST(JsonSchemaGrammar, TakesPlainDocumentsThatAreValidOnly) {
  for (const auto* cases : {&SchemaCases(), &MoreSchemaCases()}) {
    for (const SchemaCase& c : *cases) {
      const auto grammar = JsonSchemaGrammar(c.schema);
      for (const char* text : c.valid) {
        EXPECT_TRUE(AcceptsJson(grammar, text)) << c.schema << "\n" << text;
      }
      for (const char* text : c.invalid) {
        EXPECT_FALSE(AcceptsJson(grammar, text)) << c.schema << "\n" << text;
      }
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

// scripts/test_schemas.sh does the same with many schemas and a validator of others.
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
      {R"({"type": "string", "pattern": 5})", "'pattern' must be a text"},
      {R"({"type": "string", "pattern": "(a)\\1", "maxLength": 3})", "the escape '\\1'"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "allows no document"},
      {R"({"type": "string", "minLength": 5, "pattern": "^[ab]{2}$"})", "allows no document"},
      {R"({"type": "number", "multipleOf": 0.3})", "a whole number, or a part of 1"},
      {R"({"type": "number", "multipleOf": 1e-5})", "that doubles hold well"},
      {R"({"type": "number", "multipleOf": 0})", "above zero"},
      {R"({"type": "number", "minimum": 1e16})", "'minimum' leaves only numbers of more than 15"},
      {R"({"type": "integer", "maximum": -1e16})", "'maximum' leaves only numbers of more than 15"},
      {R"({"type": "number", "minimum": "1"})", "'minimum' must be a number"},
      {R"({"type": "number", "not": {"type": "integer"}})", "no integers are not supported"},
      {R"({"type": "string", "not": {"pattern": "a"}})", "'not' is supported for"},
      {R"({"type": "integer", "not": {"const": 3}})", "'not' is supported for"},
      {R"({"not": {}})", "allows no document"},
      {R"({"allOf": []})", "'allOf' must be a list"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "allows no document"},
      {R"({"allOf": [{"enum": [1]}, {"enum": [2]}]})", "allows no document"},
      {R"({"allOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]},
           {"type": "object", "properties": {}, "additionalProperties": false}]})",
       "allows no document"},
      {R"({"allOf": [{"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "string"}]}]})",
       "allows no document"},
      {R"({"allOf": [false, {"type": "null"}]})", "allows no document"},
      {R"({"allOf": [{"$ref": "#"}, {"type": "object"}]})", "begins with itself"},
      {R"({"enum": ["x"], "type": "integer"})", "allows no document"},
      {R"({"enum": ["x"], "minLength": 2})", "allows no document"},
      {R"({"type": "string", "anyOf": [{"type": "null"}]})", "allows no document"},
      {R"({"$ref": "#/$defs/b", "$defs": {"a": {}}})", "'$ref' to '#/$defs/b', which is not there"},
      {R"({"items": {"$ref": "#/$defs/1"}, "$defs": [{"type": "null"}]})", "which is not there"},
      {R"({"properties": {"a/b": {"items": {"anyOf": [{}, {"contains": {}}]}}}})",
       "'contains' is not supported (at '#/properties/a~1b/items/anyOf/1')"},
      {R"({"type": "object", "additionalProperties": {"$ref": "#/$defs/a"},
           "$defs": {"a": {"items": {"contains": 1}}}})",
       "(at '#/$defs/a/items')"},
      {R"({"if": {"type": "null"}, "then": {}})", "'if' is not supported"},
      {R"({"dependencies": {}})", "'dependencies' is not supported"},
      {R"({"type": "array", "uniqueItems": true})", "'uniqueItems' is supported where 'enum'"},
      {R"({"type": "object", "minProperties": 3})", "'minProperties' is larger than"},
      {R"({"unevaluatedProperties": {"type": "null"}})", "as true or false only"},
      {R"({"type": "thing"})", "names no type"},
      {R"({"type": []})", "'type' must be a name or a list"},
      {R"({"$ref": "http://x"})", "'$ref' to 'http://x'"},
      {R"({"$ref": "#"})", "begins with itself"},
      {R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
       "begins with itself"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "'oneOf'"},
      {R"({"oneOf": [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]})",
       "'oneOf'"},
      {R"({"oneOf": [{"type": "object", "properties": {"a": {}}},
                     {"type": "object", "properties": {"b": {}}}]})",
       "'oneOf'"},
      {R"({"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2.0, "a": 1}}]})", "'oneOf'"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "allows no document"},
      {R"({"type": "array", "minItems": 2000000})", "larger than 1000000"},
      {R"({"type": "array", "minItems": 1.5})", "must be a count"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "allows no document"},
      {R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4})",
       "allows no document"},
      {R"({"enum": []})", "'enum' must be a list"},
      {"false", "allows no document"},
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

TEST(JsonSchemaGrammar, LimitsOfStorageTakeFewBytes) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (int i = 0; i < 24; ++i) {
    const std::string name = "text" + std::to_string(i);
    schema["properties"][name] = {{"type", "string"}, {"maxLength", 65536}};
    schema["required"].push_back(name);
  }
  EXPECT_LT(JsonSchemaGrammar(schema.dump())->memory_bytes(), size_t{64} << 10);
  GrammarMatcher matcher(
      JsonSchemaGrammar(R"({"type": "string", "minLength": 3, "maxLength": 9999})"),
      JsonVocabulary());
  EXPECT_TRUE(matcher.AdvanceBytes("\"aa"));
  EXPECT_FALSE(matcher.AdvanceBytes("\""));
  for (int i = 2; i < 9999; ++i) ASSERT_TRUE(matcher.AdvanceBytes("a")) << i;
  EXPECT_FALSE(matcher.AdvanceBytes("a"));
  EXPECT_TRUE(matcher.AdvanceBytes("\""));
  EXPECT_TRUE(matcher.IsFinished());
}

// Memory of all grammars together is counted before it is taken, and given back.
TEST(JsonSchemaGrammar, KeepsToAnAllowance) {
  const auto memory = std::make_shared<GrammarMemory>(size_t{256} << 10);
  Json values = Json::array();
  for (int i = 0; i < 300; ++i) values.push_back("value" + std::to_string(i));
  const std::string schema = Json{{"enum", values}}.dump();
  std::vector<std::shared_ptr<const Grammar>> kept;
  try {
    for (int i = 0; i < 1000; ++i) kept.push_back(JsonSchemaGrammar(schema, memory));
    ADD_FAILURE() << "no end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_THAT(error.what(), HasSubstr("try again later"));
  }
  EXPECT_GE(kept.size(), 2u);
  size_t held = 0;
  for (const auto& grammar : kept) held += grammar->memory_bytes();
  EXPECT_LE(memory->held_bytes(), memory->limit_bytes());
  EXPECT_GE(memory->held_bytes(), held);
  kept.clear();
  EXPECT_EQ(memory->held_bytes(), 0u);
  EXPECT_NO_THROW(JsonSchemaGrammar(schema, memory));
  try {
    JsonSchemaGrammar(Json{{"enum", Json(400'000, Json("text"))}}.dump());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << "larger than one grammar may be";
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
