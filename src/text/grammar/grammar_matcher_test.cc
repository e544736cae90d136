// What a grammar allows next, however many ways there are to read what is written.
#include "text/grammar/grammar_matcher.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/test_json_walk.h"

namespace hearth {
namespace {

// As tokens come.
bool AcceptsInSteps(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  GrammarMatcher matcher(grammar, JsonVocabulary());
  for (const char byte : text) {
    matcher.AllowedTokens();
    if (!matcher.AdvanceBytes({&byte, 1})) return false;
  }
  return matcher.IsFinished();
}

std::shared_ptr<const Grammar> GrammarOfPattern(const std::string& pattern) {
  return JsonSchemaGrammar(SchemaJson{{"type", "string"}, {"pattern", pattern}}.dump());
}

// A schema is a few bytes, and what it allows may be read in very many ways: they are one where
// what may follow is the same.
TEST(GrammarMatcher, ManyWaysToReadATextAreFollowedTogether) {
  const std::string text = "\"" + std::string(200, 'a') + "\"";
  for (const auto& [pattern, is_valid] :
       {std::pair("^((a?){200}){200}$", true), std::pair("^(((a?){30}){30}){30}b$", false),
        std::pair("^(a{1,1000}){1,1000}$", true),
        std::pair("^[a-z ]{0,900}[a-z ]{0,900}[a-z ]{0,900}$", true)}) {
    EXPECT_EQ(AcceptsInSteps(GrammarOfPattern(pattern), text), is_valid) << pattern;
  }
  const auto lists = JsonSchemaGrammar(
      R"({"anyOf": [{"type": "array", "items": {"$ref": "#"}},
                    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
                    {"type": "array", "items": {"$ref": "#"}, "minItems": 2}]})");
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  EXPECT_TRUE(AcceptsInSteps(lists, deep));
  EXPECT_TRUE(AcceptsInSteps(lists, "[" + deep + ", [[], []]]"));
  EXPECT_FALSE(AcceptsInSteps(lists, deep + "]"));
  EXPECT_FALSE(AcceptsInSteps(lists, "[" + deep));
}

// What would keep all others waiting.
TEST(GrammarMatcher, TooManyWaysToReadATextAreRefused) {
  const std::string text = "\"" + std::string(200, 'a') + "\"";
  for (const char* pattern :
       {"^((((((a?){300}){300}){300}){300}){300})b$", "^((a{0,500}){0,500}){0,500}$"}) {
    EXPECT_THROW(AcceptsInSteps(GrammarOfPattern(pattern), text), Error) << pattern;
  }
}

TEST(GrammarMatcher, GrammarsThatCountCanBeParts) {
  GrammarBuilder builder;
  const auto dots = builder.Repeat({builder.Byte('.')}, 1, 2);
  const auto first = builder.Add(*GrammarOfPattern("^a{2,3}$"));
  const auto second = builder.Add(*GrammarOfPattern("^(b{1,2}c){2}$"));
  const auto grammar =
      std::make_shared<const Grammar>(builder.Build(builder.AnyOf({{first, dots, second}}).index));
  for (const char* text : {R"("aa"."bcbbc")", R"("aaa".."bcbc")"}) {
    EXPECT_TRUE(AcceptsInSteps(grammar, text)) << text;
  }
  for (const char* text : {R"("a"."bcbc")", R"("aaaa"."bcbc")", R"("aa""bcbc")", R"("aa"..."bcbc")",
                           R"("aa"."bc")", R"("aa"."bbbcbc")"}) {
    EXPECT_FALSE(AcceptsInSteps(grammar, text)) << text;
  }
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
