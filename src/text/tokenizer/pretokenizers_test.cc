#include "text/tokenizer/pretokenizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "base/test_data.h"
#include "text/tokenizer/regex_splitter.h"

namespace hearth {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<std::string> Pieces(const RegexSplitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  splitter.Split(text, [&pieces](std::string_view p) { pieces.emplace_back(p); });
  return pieces;
}

std::vector<std::string> Pieces(std::string_view name, std::string_view text) {
  return Pieces(RegexSplitter(SplitPatterns(*FindPreTokenizerOrNull(name))), text);
}

// Two sources: the second knows normal forms, and has patterns where the first is wrong.
TEST(PreTokenizers, EqualThePublishedOnes) {
  HEARTH_NEED_SHARED("data/vocab/2026/pretokenizers.json");
  const auto read = [](const char* path) {
    return nlohmann::json::parse(ReadWholeFile(SharedPath(path)))["pre"];
  };
  auto published = read("data/vocab/pretokenizers.json");
  published.merge_patch(read("data/vocab/2026/pretokenizers.json"));
  ASSERT_GE(published.size(), 15u);
  // The same matches, spelled without regard to case.
  const std::string spelled = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
  for (const auto& [name, expected] : published.items()) {
    SCOPED_TRACE(name);
    const PreTokenizer* found = FindPreTokenizerOrNull(name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, name);
    std::vector<std::string> patterns = expected["split"];
    for (std::string& pattern : patterns) {
      const size_t at = pattern.find(spelled);
      if (at != std::string::npos) {
        pattern.replace(at, spelled.size(), "(?i:'s|'t|'re|'ve|'m|'ll|'d)");
      }
    }
    EXPECT_THAT(found->patterns, ElementsAreArray(patterns));
    EXPECT_EQ(found->ignore_merges, expected.value("ignore_merges", false));
    EXPECT_EQ(found->add_bos, expected.value("add_bos", false));
    // Command-R's tokenizer does so too (transformers' CohereTokenizer).
    EXPECT_EQ(found->nfc, name == "command-r" || expected.value("normalize", "") == "NFC");
  }
}

TEST(PreTokenizers, NamesAreDistinctAndFound) {
  std::set<std::string_view> names = {"", "default"};
  for (const PreTokenizer& pre_tokenizer : PreTokenizers()) {
    EXPECT_TRUE(names.insert(pre_tokenizer.name).second) << pre_tokenizer.name;
    EXPECT_EQ(FindPreTokenizerOrNull(pre_tokenizer.name), &pre_tokenizer);
    for (const std::string_view alias : pre_tokenizer.aliases) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
      EXPECT_EQ(FindPreTokenizerOrNull(alias), &pre_tokenizer);
    }
  }
  EXPECT_EQ(FindPreTokenizerOrNull(""), FindPreTokenizerOrNull("gpt-2"));
  EXPECT_EQ(FindPreTokenizerOrNull("default"), FindPreTokenizerOrNull("gpt-2"));
  EXPECT_EQ(FindPreTokenizerOrNull("GPT-2"), nullptr);
  EXPECT_EQ(FindPreTokenizerOrNull("no such"), nullptr);
}

TEST(PreTokenizers, CutAsTheirModelsDo) {
  EXPECT_THAT(Pieces("gpt-2", "I'll  pay 1234."),
              ElementsAre("I", "'ll", " ", " pay", " 1234", "."));
  EXPECT_THAT(Pieces("llama-bpe", "I'LL  pay 1234.\n\n"),
              ElementsAre("I", "'LL", " ", " pay", " ", "123", "4", ".\n\n"));
  EXPECT_THAT(Pieces("qwen2", "x=12"), ElementsAre("x", "=", "1", "2"));
  EXPECT_THAT(Pieces("falcon", "a$b 12345"), ElementsAre("a", "$", "b", " ", "123", "45"));
  EXPECT_THAT(Pieces("starcoder", "a 12"), ElementsAre("a", " ", "1", "2"));
  EXPECT_THAT(Pieces("deepseek-llm", "hi there,\n 12  "),
              ElementsAre("hi", " there", ",", "\n", " ", "12", "  "));
  EXPECT_THAT(Pieces("deepseek-coder", "hi, 12"), ElementsAre("hi", ",", " ", "1", "2"));
  EXPECT_THAT(Pieces("tekken", "camelCase HTTPServer a/b"),
              ElementsAre("camel", "Case", " HTTPServer", " a", "/b"));
  EXPECT_THAT(Pieces("gpt-4o", "It's HTTPServer'll"), ElementsAre("It's", " HTTPServer'll"));
  EXPECT_THAT(Pieces("gpt-4o", "caf\u0065\u0301S \u0E17\u0E35\u0E48 1234"),
              ElementsAre("cafe\u0301", "S", " \u0E17\u0E35\u0E48", " ", "123", "4"));
  EXPECT_THAT(Pieces("tekken", "\u0939\u093F\u0928\u094D\u0926\u0940 it's"),
              ElementsAre("\u0939\u093F\u0928\u094D\u0926\u0940", " it", "'s"));
  EXPECT_THAT(Pieces("llama-bpe", "I'\u017F 'LL"), ElementsAre("I", "'\u017F", " '", "LL"));
  EXPECT_THAT(Pieces("qwen35", "e\u0301t\u00E9 x"), ElementsAre("e\u0301t\u00E9", " x"));
  EXPECT_THAT(Pieces("deepseek-v3", "\u4E2D\u6587 12345 a.net"),
              ElementsAre("\u4E2D\u6587", " ", "123", "45", " a", ".net"));
}

// No white space since Unicode 6.3, unlike U+2028.
TEST(PreTokenizers, MongolianVowelSeparatorIsNoSpace) {
  for (const PreTokenizer& pre_tokenizer : PreTokenizers()) {
    for (const std::string& pattern : SplitPatterns(pre_tokenizer)) {
      EXPECT_EQ(pattern.find("\\s"), std::string::npos) << pattern;
      EXPECT_EQ(pattern.find("\\S"), std::string::npos) << pattern;
    }
  }
  EXPECT_THAT(Pieces("gpt-2", "a \u180E! b\u180E\u180E."),
              ElementsAre("a", " \u180E!", " b", "\u180E\u180E."));
  EXPECT_THAT(Pieces("gpt-2", "a\u2028\u2028b"), ElementsAre("a", "\u2028", "\u2028", "b"));
}

TEST(PreTokenizers, AliasesSplitAsTheirPattern) {
  const auto pattern_of = [](std::string_view name) {
    return FindPreTokenizerOrNull(name)->patterns.front();
  };
  EXPECT_EQ(FindPreTokenizerOrNull("pixtral"), FindPreTokenizerOrNull("llama-bpe"));
  for (const char* name : {"chatglm-bpe", "glm4", "glm5"}) {
    EXPECT_EQ(pattern_of(name), pattern_of("llama-bpe"));
    EXPECT_FALSE(FindPreTokenizerOrNull(name)->add_bos);
    EXPECT_EQ(FindPreTokenizerOrNull(name)->ignore_merges, std::string_view(name) != "chatglm-bpe");
  }
  for (const char* name : {"kormo", "solar-open", "grok-2"}) {
    EXPECT_EQ(pattern_of(name), pattern_of("qwen2"));
    EXPECT_FALSE(FindPreTokenizerOrNull(name)->nfc);
  }
  EXPECT_TRUE(FindPreTokenizerOrNull("stablelm2")->nfc);
  EXPECT_EQ(FindPreTokenizerOrNull("minerva-7b"), FindPreTokenizerOrNull("starcoder"));
  EXPECT_EQ(FindPreTokenizerOrNull("kanana2"), FindPreTokenizerOrNull("gpt-4o"));
  EXPECT_EQ(FindPreTokenizerOrNull("hy_v4"), FindPreTokenizerOrNull("deepseek-v3"));
}

// Characters on which the patterns decide.
std::string RandomText(std::mt19937& random, size_t length) {
  static const char* const kCharacters[] = {
      "a",      "z",      "A",      "Z",      "'",      "s",      "S",         "l",      "1",
      "9",      " ",      " ",      "\n",     "\r",     "\t",     ".",         "/",      "$",
      "|",      "\u00E9", "\u00C9", "\u0301", "\u4E2D", "\u3042", "\u0E01",    "\u0661", "\u3000",
      "\u00A0", "\u2028", "\u212A", "\u01C5", "\u02B0", "\uFF21", "\U0001F642"};
  std::string text;
  for (size_t i = 0; i < length; ++i) text += kCharacters[random() % std::size(kCharacters)];
  return text;
}

// What runs is a faster form of what was published.
TEST(PreTokenizers, RewrittenPatternsCutTheSame) {
  std::mt19937 random(11);
  for (const PreTokenizer& pre_tokenizer : PreTokenizers()) {
    SCOPED_TRACE(pre_tokenizer.name);
    const std::vector<std::string> published(pre_tokenizer.patterns.begin(),
                                             pre_tokenizer.patterns.end());
    EXPECT_NE(SplitPatterns(pre_tokenizer), published);
    const RegexSplitter slow(published);
    const RegexSplitter fast(SplitPatterns(pre_tokenizer));
    for (int i = 0; i < 5000; ++i) {
      const std::string text = RandomText(random, 1 + random() % 12);
      ASSERT_EQ(Pieces(slow, text), Pieces(fast, text)) << text;
    }
  }
}

TEST(PreTokenizers, LoseNothingAndTakeLinearTime) {
  std::mt19937 random(5);
  std::string cases[] = {std::string(1'000'000, 'a'),
                         std::string(1'000'000, 'A'),
                         std::string(1'000'000, '1'),
                         std::string(1'000'000, '.'),
                         std::string(1'000'000, '\n'),
                         std::string(1'000'000, ' ') + "7",
                         "",
                         RandomText(random, 300'000)};
  for (int i = 0; i < 1000; ++i) cases[6] += std::string(1000, ' ') + "7";
  for (const PreTokenizer& pre_tokenizer : PreTokenizers()) {
    const RegexSplitter splitter(SplitPatterns(pre_tokenizer));
    for (const std::string& text : cases) {
      const auto begin = std::chrono::steady_clock::now();
      size_t length = 0;
      bool in_order = true;
      splitter.Split(text, [&](std::string_view piece) {
        in_order = in_order && !piece.empty() && piece.data() == text.data() + length;
        length += piece.size();
      });
      EXPECT_TRUE(in_order);
      EXPECT_EQ(length, text.size());
      // Milliseconds; what is not linear takes minutes.
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20))
          << pre_tokenizer.name << " on " << text.substr(0, 20);
    }
  }
}

}  // namespace
}  // namespace hearth
