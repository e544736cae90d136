#include "text/chat/thinking.h"

#include <gtest/gtest.h>

#include <string>

#include "text/grammar/grammar_matcher.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

TEST(Thinking, TemplatesTeachTheMarks) {
  EXPECT_EQ(DetectThinking("{{ content.split('</think>')[-1] }}")->begin, "<think>");
  EXPECT_EQ(DetectThinking("[THINK]{{ m }}[/THINK]")->end, "[/THINK]");
  EXPECT_FALSE(DetectThinking("{{ messages }}").has_value());
}

TEST(Thinking, AnswersGoOnFromWhatThePromptWrote) {
  const Thinking marks = *DetectThinking("<think></think>");
  const auto after = [&](const std::string& text, bool trusted) {
    return ThinkingAfter(marks, {{"Hi", false}, {text, trusted}});
  };
  EXPECT_TRUE(after("<assistant><think>\n", true)->is_open);
  EXPECT_FALSE(after("<assistant>", true)->is_open);
  EXPECT_FALSE(after("<assistant><think>\n\n</think>\n\n", true).has_value());
  EXPECT_FALSE(after("<think>", false)->is_open) << "a user wrote it";
}

class ThinkingGrammar : public ::testing::Test {
 protected:
  // Whether an answer of these bytes is whole.
  bool Takes(const std::string& text, bool is_open) const {
    const Thinking thinking = {"<think>", "</think>", is_open};
    const auto grammar =
        AfterThinking(*JsonSchemaGrammar(R"({"enum": ["a", "b"]})"), thinking, *tokenizer_);
    GrammarMatcher matcher(grammar, vocabulary_);
    return matcher.AdvanceBytes(text) && matcher.IsFinished();
  }

  const GgufMetadata metadata_ = SmallBpeVocabulary().Bpe();
  const std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::FromGguf(metadata_);
  const std::shared_ptr<const SortedVocabulary> vocabulary_ =
      std::make_shared<const SortedVocabulary>(*tokenizer_);
};

TEST_F(ThinkingGrammar, BeginsAfterTheThoughts) {
  EXPECT_TRUE(Takes("why {} \"c\" </thin</think>\n\n\"a\"", true));
  EXPECT_TRUE(Takes("</think>\"b\"", true));
  EXPECT_FALSE(Takes("why </think>\"c\"", true));
  EXPECT_FALSE(Takes("\"a\"", true)) << "these are thoughts, and no answer";
  EXPECT_FALSE(Takes("why", true));
}

TEST_F(ThinkingGrammar, ThoughtsThatAreNotOpenMayBeLeftOut) {
  EXPECT_TRUE(Takes("\"a\"", false));
  EXPECT_TRUE(Takes("\n<think>c</think> \"a\"", false));
  EXPECT_FALSE(Takes("c</think>\"a\"", false));
  EXPECT_FALSE(Takes("<think>\"a\"", false));
}

}  // namespace
}  // namespace hearth
