#include "text/chat/thinking_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace hearth {
namespace {

using Sum = std::pair<std::string, std::string>;

// Thoughts and answer, where the text comes in pieces of that size.
Sum Read(const std::string& text, bool is_open, size_t piece) {
  ThinkingReader reader({.begin = "<think>", .end = "</think>", .is_open = is_open});
  Sum sum;
  const auto add = [&](const ThinkingReader::Parts& parts) {
    sum.first += parts.thoughts;
    sum.second += parts.answer;
  };
  for (size_t at = 0; at < text.size(); at += piece) add(reader.Push(text.substr(at, piece)));
  add(reader.Finish());
  return sum;
}

TEST(ThinkingReader, TellsThoughtsFromAnswers) {
  const struct {
    const char* text;
    bool is_open;
    Sum expected;
  } cases[] = {
      {"<think>\nWhy?\n\nSo.\n</think>\n\nYes </think>.\n",
       false,
       {"Why?\n\nSo.", "Yes </think>.\n"}},
      {"\n <think>a</think>b", false, {"a", "b"}},
      {"a <think>b</think>", false, {"", "a <think>b</think>"}},
      {" <thin", false, {"", " <thin"}},
      {"<thinker>", false, {"", "<thinker>"}},
      {"a</thi</think> b", true, {"a</thi", "b"}},
      {"a <</think>b", true, {"a <", "b"}},
      {"</think>b", true, {"", "b"}},
      {" \n</think>\n", true, {"", ""}},
      {"cut off \xc3\xa9 </thin", true, {"cut off \xc3\xa9 </thin", ""}},
      {"", true, {"", ""}},
  };
  for (const auto& c : cases) {
    for (const size_t piece : {1, 2, 5, 100}) {
      EXPECT_EQ(Read(c.text, c.is_open, piece), c.expected) << c.text << " in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace hearth
