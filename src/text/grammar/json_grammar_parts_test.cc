// Grammars of any JSON take JSON and write nothing else.
#include "text/grammar/json_grammar_parts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/test_json_walk.h"

namespace hearth {
namespace {

TEST(JsonGrammar, RandomWalksAreJson) {
  std::mt19937 random(1);
  const auto grammar = JsonObjectGrammar();
  for (int i = 0; i < 40; ++i) {
    const std::string text = RandomJson(grammar, random);
    const auto json = nlohmann::json::parse(text, nullptr, false);
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

}  // namespace
}  // namespace hearth
