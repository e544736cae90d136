// Whatever is written under a grammar is JSON of its schema, and plain documents can be written.
#include "text/json_schema_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/grammar_matcher.h"
#include "text/test_vocabularies.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// Byte letters, and tokens of several characters that cross the parts of a document.
const Tokenizer& JsonTokenizer() {
  static const auto tokenizer = [] {
    VocabularyBuilder builder = SmallBpeVocabulary();
    for (const char* text :
         {"\":", "{\"", "\"}", "\",\"", "true", "null", "12", "[[", "]]", "}}"}) {
      builder.Add(text, TokenType::kNormal);
    }
    return Tokenizer::FromGguf(builder.Bpe());
  }();
  return *tokenizer;
}

std::shared_ptr<const SortedVocabulary> JsonVocabulary() {
  static const auto vocabulary = std::make_shared<const SortedVocabulary>(JsonTokenizer());
  return vocabulary;
}

bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  GrammarMatcher matcher(grammar, JsonVocabulary());
  return matcher.AdvanceBytes(text) && matcher.IsFinished();
}

// A text of random allowed tokens; after `long_enough` the ones that end things are preferred.
std::string RandomWalk(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  GrammarMatcher matcher(grammar, JsonVocabulary());
  const Tokenizer& tokenizer = JsonTokenizer();
  std::string text;
  for (int step = 0; step < 3000; ++step) {
    const TokenMask mask = matcher.AllowedTokens();
    std::vector<TokenId> allowed;
    std::vector<TokenId> closing;
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (!IsAllowed(mask, id)) continue;
      if (tokenizer.IsEndOfGeneration(id)) {
        if (step > 40 || random() % 4 == 0) return text;
        continue;
      }
      allowed.push_back(id);
      const std::string_view bytes = tokenizer.TokenBytes(id);
      if (bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "0") closing.push_back(id);
    }
    if (allowed.empty()) return text;
    const auto& choice = step > 40 && !closing.empty() ? closing : allowed;
    const TokenId id = choice[random() % choice.size()];
    EXPECT_TRUE(matcher.Advance(id));
    text += tokenizer.TokenBytes(id);
  }
  ADD_FAILURE() << "no end: " << text.substr(0, 200);
  return text;
}

TEST(JsonGrammar, RandomWalksAreJson) {
  std::mt19937 random(1);
  const auto grammar = JsonObjectGrammar();
  for (int i = 0; i < 40; ++i) {
    const std::string text = RandomWalk(grammar, random);
    const Json json = Json::parse(text, nullptr, false);
    EXPECT_TRUE(json.is_object()) << text;
  }
}

TEST(JsonGrammar, TakesJsonObjectsAndNothingElse) {
  const auto grammar = JsonObjectGrammar();
  for (const char* text : {"{}", R"({"a": 1})", R"({"a":[1,-2.5e+3,true,false,null,"\u00e9\n"]})",
                           R"({"a": {"b": {}}, "c": []})", "{\n  \"a\": 1,\n  \"b\": 2\n}",
                           "{\"\xC3\xA9\": \"\xF0\x9F\x98\x80\"}"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {"", "[]", "{", R"({"a"})", R"({"a": 01})", R"({"a": 1,})", R"({a: 1})",
                           R"({"a": "\x"})", "{\"\xC3\": 1}", R"({"a": 1}})", "{\"a\n\": 1}"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
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
      {R"({"type": "object"})", {"{}", R"({"x": [1, {"y": null}]})"}, {"[]"}},
      {"true", {"1", "null", "[[]]", "{}"}, {"nope", ""}},
  };
  return cases;
}

TEST(JsonSchemaGrammar, TakesPlainDocumentsThatAreValidOnly) {
  for (const SchemaCase& c : SchemaCases()) {
    const auto grammar = JsonSchemaGrammar(c.schema);
    for (const char* text : c.valid)
      EXPECT_TRUE(Accepts(grammar, text)) << c.schema << "\n" << text;
    for (const char* text : c.invalid) {
      EXPECT_FALSE(Accepts(grammar, text)) << c.schema << "\n" << text;
    }
  }
}

// A validator of its own for what the cases use.
bool IsValid(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) return IsValid(root["$defs"]["tree"], value, root);
  if (schema.contains("const")) return value == schema["const"];
  if (schema.contains("enum")) {
    return std::count(schema["enum"].begin(), schema["enum"].end(), value) > 0;
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    if (!schema.contains(name)) continue;
    int64_t count = 0;
    for (const Json& part : schema[name]) count += IsValid(part, value, root) ? 1 : 0;
    return std::string(name) == "oneOf" ? count == 1 : count > 0;
  }
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
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
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
      const std::string text = RandomWalk(grammar, random);
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
      EXPECT_EQ(Accepts(grammar, std::to_string(number)), number >= low && number <= high)
          << schema << " " << number;
    }
  }
}

TEST(JsonSchemaGrammar, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "string", "pattern": "a"})", "'pattern' is not supported"},
      {R"({"type": "string", "format": "date"})", "'format' is not supported"},
      {R"({"type": "number", "minimum": 1})", "'minimum' is supported for integers only"},
      {R"({"allOf": []})", "'allOf' without a 'type'"},
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
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"items":)";
  EXPECT_THROW(JsonSchemaGrammar(deep), Error);
  EXPECT_THROW(JsonSchemaGrammar(R"({"const": )" + std::string(100'000, '[') +
                                 std::string(100'000, ']') + "}"),
               Error);
}

TEST(GrammarMatcher, SaysWhenATextMayEndAndKeepsItsPlace) {
  GrammarMatcher matcher(JsonSchemaGrammar(R"({"type": "integer"})"), JsonVocabulary());
  EXPECT_FALSE(matcher.IsFinished());
  EXPECT_FALSE(matcher.AdvanceBytes("x"));
  EXPECT_TRUE(matcher.AdvanceBytes("-"));
  EXPECT_FALSE(matcher.IsFinished());
  EXPECT_FALSE(matcher.AdvanceBytes("-"));
  EXPECT_TRUE(matcher.AdvanceBytes("12"));
  EXPECT_TRUE(matcher.IsFinished());
  const TokenId end = JsonTokenizer().FindToken("<|im_end|>");
  EXPECT_TRUE(IsAllowed(matcher.AllowedTokens(), end));
  EXPECT_TRUE(matcher.Advance(end));
  EXPECT_FALSE(matcher.Advance(-1));
  EXPECT_FALSE(matcher.Advance(JsonTokenizer().FindToken("true")));
}

TEST(GrammarMatcher, MaskAgreesWithTryingEveryToken) {
  std::mt19937 random(4);
  const auto grammar = JsonObjectGrammar();
  const Tokenizer& tokenizer = JsonTokenizer();
  GrammarMatcher matcher(grammar, JsonVocabulary());
  for (int step = 0; step < 12; ++step) {
    const TokenMask mask = matcher.AllowedTokens();
    std::vector<TokenId> allowed;
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      GrammarMatcher trial = matcher;
      EXPECT_EQ(trial.Advance(id), IsAllowed(mask, id)) << tokenizer.VocabularyText(id);
      if (IsAllowed(mask, id) && !tokenizer.IsEndOfGeneration(id)) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    matcher.Advance(allowed[random() % allowed.size()]);
  }
}

TEST(GrammarMatcher, LongTextsTakeBoundedMemoryAndStayExact) {
  // Nesting makes ever new states; what is forgotten meanwhile changes nothing.
  GrammarMatcher matcher(JsonObjectGrammar(), JsonVocabulary());
  std::string text = "{\"a\":";
  text += std::string(3000, '[') + "1" + std::string(3000, ']');
  for (const char byte : text) ASSERT_TRUE(matcher.AdvanceBytes({&byte, 1}));
  EXPECT_FALSE(matcher.IsFinished());
  EXPECT_FALSE(matcher.AdvanceBytes("]"));
  EXPECT_TRUE(matcher.AdvanceBytes("}"));
  EXPECT_TRUE(matcher.IsFinished());
}

}  // namespace
}  // namespace hearth
