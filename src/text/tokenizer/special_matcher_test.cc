#include "text/tokenizer/special_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace hearth {
namespace {

TEST(SpecialMatcher, TakesTheLeftmostThenTheLongest) {
  const SpecialMatcher matcher({{"ab", 1}, {"abcd", 2}, {"bcdef", 3}, {"abc", 4}, {"x", 5}});
  const auto match = matcher.FindNext("..abcxx", 0);
  EXPECT_EQ(match.begin, 2u);
  EXPECT_EQ(match.length, 3u);
  EXPECT_EQ(match.id, 4);
  EXPECT_EQ(matcher.FindNext("abcdef", 0).id, 2);
  EXPECT_EQ(matcher.FindNext("abcdef", 1).id, 3);
  EXPECT_EQ(matcher.FindNext("..abcxx", 3).id, 5);
  EXPECT_EQ(matcher.FindNext("a", 0).length, 0u);
  EXPECT_EQ(matcher.FindNext("", 0).length, 0u);
}

TEST(SpecialMatcher, ToleratesEmptyAndRepeatedTexts) {
  const SpecialMatcher matcher({{"", 1}, {"x", 2}, {"x", 3}});
  EXPECT_EQ(matcher.FindNext("yx", 0).id, 2);
  EXPECT_TRUE(SpecialMatcher({{"", 1}}).empty());
  EXPECT_EQ(SpecialMatcher().FindNext("x", 0).length, 0u);
}

TEST(SpecialMatcher, AgreesWithTryingEveryEntry) {
  std::mt19937 random(3);
  const auto random_text = [&random](size_t length) {
    std::string text(length, ' ');
    for (char& c : text) c = "a\x80\xFF"[random() % 3];
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> texts;
    for (int i = 0; i < 6; ++i) texts.push_back(random_text(1 + random() % 5));
    std::vector<SpecialMatcher::Entry> entries;
    for (size_t i = 0; i < texts.size(); ++i) entries.push_back({texts[i], static_cast<int>(i)});
    const std::string text = random_text(12);
    SpecialMatcher::Match expected;
    for (size_t begin = 0; begin < text.size() && expected.length == 0; ++begin) {
      for (size_t i = 0; i < texts.size(); ++i) {
        if (text.compare(begin, texts[i].size(), texts[i]) == 0 &&
            texts[i].size() > expected.length) {
          expected = {begin, texts[i].size(), static_cast<TokenId>(i)};
        }
      }
    }
    const auto found = SpecialMatcher(entries).FindNext(text, 0);
    ASSERT_EQ(found.begin, expected.begin);
    ASSERT_EQ(found.length, expected.length);
    ASSERT_EQ(found.id, expected.id);
  }
}

}  // namespace
}  // namespace hearth
