#include "text/chat/harmony_grammar.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "text/chat/harmony.h"
#include "text/grammar/grammar_matcher.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

const std::string kThinks = "<|channel|>analysis<|message|>{ hm <|end|><|start|>assistant";
const std::string kSays = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
const std::string kFinal = "<|channel|>final<|message|>";

std::vector<ToolFunction> Functions(bool strict) {
  return {{.name = "brew",
           .description = "",
           .parameters = R"({"type": "object", "properties": {"cups": {"type": "integer"}},
                             "required": ["cups"], "additionalProperties": false})",
           .strict = strict}};
}

class HarmonyGrammarTest : public ::testing::TestWithParam<bool> {
 protected:
  HarmonyGrammarTest() {
    VocabularyBuilder builder = SmallBpeVocabulary();
    if (GetParam()) {
      for (const std::string_view marker : kHarmonyMarkers) {
        builder.Add(std::string(marker), TokenType::kControl);
      }
    }
    metadata_ = builder.Bpe();
    tokenizer_ = Tokenizer::FromGguf(metadata_);
    vocabulary_ = std::make_shared<const SortedVocabulary>(*tokenizer_);
  }

  // Whether an answer of these texts and markers is whole.
  bool Takes(const std::vector<ToolFunction>& functions, const ToolGrammarOptions& options,
             const std::string& answer) const {
    const auto grammar = HarmonyGrammar(functions, options, *tokenizer_);
    GrammarMatcher matcher(grammar, vocabulary_);
    for (const TokenId id : tokenizer_->Encode(answer, {.parse_special = true})) {
      if (!matcher.Advance(id)) return false;
    }
    return matcher.IsFinished();
  }

  GgufMetadata metadata_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::shared_ptr<const SortedVocabulary> vocabulary_;
};

TEST_P(HarmonyGrammarTest, AnswersKeepToASchema) {
  const auto takes = [&](const std::string& answer) {
    return Takes({}, {.answer_schema = R"({"enum": ["a", "b"]})"}, answer);
  };
  EXPECT_TRUE(takes(kFinal + "\"a\""));
  EXPECT_TRUE(takes(kThinks + kThinks + kFinal + "\"b\""));
  EXPECT_TRUE(takes(kThinks + "<|channel|>final <|constrain|>json<|message|>\"b\""));
  EXPECT_FALSE(takes(kThinks + kFinal + "\"c\""));
  EXPECT_FALSE(takes(kThinks + kFinal + "\"b\"<|end|>"));
  EXPECT_FALSE(takes(kSays + kFinal + "\"a\"")) << "only the document may be said";
  EXPECT_FALSE(takes("\"a\""));
  EXPECT_FALSE(takes(kThinks)) << "thoughts alone are no answer";
}

TEST_P(HarmonyGrammarTest, CallsCanBeDemanded) {
  const auto takes = [&](const std::string& answer) {
    return Takes(Functions(false), {.must_call = true}, answer);
  };
  const std::string call = "<|channel|>commentary to=functions.brew <|constrain|>json<|message|>";
  EXPECT_TRUE(takes(call + "{\"cups\": 2}"));
  EXPECT_TRUE(takes(kThinks + call + "{\"cups\": 2}"));
  EXPECT_TRUE(takes(" to=functions.brew<|channel|>commentary json<|message|>{\"cups\": 2}"));
  EXPECT_FALSE(takes(call + "{\"cups\": \"2\"}"));
  EXPECT_FALSE(takes(call + "{}"));
  EXPECT_FALSE(takes("<|channel|>commentary to=functions.fly<|message|>{}"));
  EXPECT_FALSE(takes(kThinks + kFinal + "No."));
}

TEST_P(HarmonyGrammarTest, StrictFunctionsKeepToTheirSchema) {
  const auto takes = [&](const std::string& answer) { return Takes(Functions(true), {}, answer); };
  EXPECT_TRUE(takes(kThinks + kSays + kFinal + "Any {text}."));
  EXPECT_TRUE(takes(kSays + "<|channel|>commentary to=functions.brew<|message|>{\"cups\": 1}"));
  EXPECT_FALSE(takes("<|channel|>commentary to=functions.brew<|message|>{\"pots\": 1}"));
}

TEST_P(HarmonyGrammarTest, NothingIsDemandedOfOtherAnswers) {
  EXPECT_EQ(HarmonyGrammar({}, {}, *tokenizer_), nullptr);
  EXPECT_EQ(HarmonyGrammar(Functions(false), {}, *tokenizer_), nullptr);
}

INSTANTIATE_TEST_SUITE_P(MarkersAsTokensAndAsTexts, HarmonyGrammarTest, ::testing::Bool());

}  // namespace
}  // namespace hearth
