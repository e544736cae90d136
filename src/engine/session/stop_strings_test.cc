#include "engine/session/stop_strings.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

// Feeds `text` in pieces of `size` bytes; returns everything that was let through.
std::string Feed(StopMatcher& matcher, const std::string& text, size_t size) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += size) out += matcher.Push(text.substr(i, size));
  return out + matcher.Finish();
}

TEST(StopMatcherTest, CutsBeforeTheFirstStopWhateverThePieces) {
  const std::string text = "one two END three STOP";
  for (size_t size = 1; size <= text.size(); ++size) {
    StopMatcher matcher({"STOP", "END"});
    EXPECT_EQ(Feed(matcher, text, size), "one two ") << size;
    EXPECT_TRUE(matcher.stopped());
  }
}

TEST(StopMatcherTest, LetsEverythingThroughWithoutAMatch) {
  const std::string text = "aaab EN E ENDE?";
  for (size_t size = 1; size <= text.size(); ++size) {
    StopMatcher matcher({"aab!", "ENDED", ""});
    EXPECT_EQ(Feed(matcher, text, size), text) << size;
    EXPECT_FALSE(matcher.stopped());
  }
}

TEST(StopMatcherTest, HoldsBackOnlyWhatCouldBecomeAStop) {
  StopMatcher matcher({"<|end|>"});
  EXPECT_EQ(matcher.Push("text <"), "text ");
  EXPECT_EQ(matcher.Push("b>"), "<b>");
  EXPECT_EQ(matcher.Push("<|end"), "");
  EXPECT_EQ(matcher.Finish(), "<|end") << "the stream ended: it was text";
}

TEST(StopMatcherTest, FindsAStopThatOverlapsItself) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(Feed(matcher, "aaaab", 1), "aa");
}

}  // namespace
}  // namespace hearth
