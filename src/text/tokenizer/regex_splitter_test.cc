#include "text/tokenizer/regex_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

using testing::ElementsAre;

std::vector<std::string> SplitBy(const std::vector<std::string>& patterns, std::string_view text) {
  std::vector<std::string> pieces;
  RegexSplitter(patterns).Split(text, [&pieces](std::string_view p) { pieces.emplace_back(p); });
  return pieces;
}

TEST(RegexSplitter, WhatLiesBetweenMatchesIsAPiece) {
  EXPECT_THAT(SplitBy({"[0-9]+"}, "ab12cd3"), ElementsAre("ab", "12", "cd", "3"));
  EXPECT_THAT(SplitBy({"x"}, "abc"), ElementsAre("abc"));
  EXPECT_THAT(SplitBy({}, "abc"), ElementsAre("abc"));
  EXPECT_THAT(SplitBy({"x"}, ""), ElementsAre());
}

TEST(RegexSplitter, LaterPatternsSeeOnlyTheirPiece) {
  // The end of a piece is the end of the text for look-ahead and "$".
  EXPECT_THAT(SplitBy({"[0-9]", R"(\s+(?!\S)|\s+$)"}, "  1  a"), ElementsAre("  ", "1", " ", " a"));
  EXPECT_THAT(SplitBy({"b", "[abc]{2}"}, "abca"), ElementsAre("a", "b", "ca"));
}

TEST(RegexSplitter, KnowsUnicodeClasses) {
  EXPECT_THAT(SplitBy({R"(\p{L}+)"}, "\u00E9t\u4E2D 1\u0661"),
              ElementsAre("\u00E9t\u4E2D", " 1\u0661"));
  EXPECT_THAT(SplitBy({R"(\s)"}, "a\u3000b"), ElementsAre("a", "\u3000", "b"));
}

TEST(RegexSplitter, IgnoresEmptyMatches) {
  EXPECT_THAT(SplitBy({"a*"}, "baac"), ElementsAre("b", "aa", "c"));
}

TEST(RegexSplitter, RefusesABrokenPattern) { EXPECT_THROW(RegexSplitter({"("}), Error); }

// Repeated groups need stack per repeat, nested repeats time; neither may fail or lose text.
TEST(RegexSplitter, SurvivesRunningOutOfStackAndSteps) {
  const std::string letters(3'000'000, 'A');
  const std::string grouped = "((?=[A-Z])([^a-z]))+";
  std::string joined;
  RegexSplitter({grouped}).Split(letters + "...", [&](std::string_view p) { joined += p; });
  EXPECT_EQ(joined, letters + "...");

  const std::string medium(20'000, 'A');  // beyond the default stack, within the larger one
  EXPECT_THAT(SplitBy({grouped}, medium + "."), ElementsAre(medium, "."));

  const std::string hopeless = std::string(100, 'a') + "! 12";
  joined.clear();
  RegexSplitter({"(?:a+a+)+b", "[0-9]"}).Split(hopeless, [&](std::string_view p) { joined += p; });
  EXPECT_EQ(joined, hopeless);
  // The next pattern still cuts what the hopeless one left whole.
  EXPECT_THAT(SplitBy({"(?:a+a+)+b", "[0-9]"}, hopeless),
              ElementsAre(std::string(100, 'a') + "! ", "1", "2"));
}

}  // namespace
}  // namespace hearth
