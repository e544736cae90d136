#include "prepare/pack/text_parts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace hearth {
namespace {

TEST(TextPartsTest, PartsHaveNoTokenInCommon) {
  std::vector<TokenId> text(1003);
  std::iota(text.begin(), text.end(), 0);
  const TextParts outer = SplitText(text);
  const TextParts inner = SplitText(outer.first);
  EXPECT_TRUE(outer.are_apart());
  EXPECT_TRUE(inner.are_apart());
  EXPECT_EQ(outer.last.size(), 200u);
  EXPECT_EQ(inner.last.size(), 160u);
  EXPECT_EQ(inner.first.front(), 0);
  EXPECT_EQ(inner.first.back() + 1, inner.last.front());
  EXPECT_EQ(inner.last.back() + 1, outer.last.front());
  EXPECT_EQ(outer.last.back(), 1002);
}

TEST(TextPartsTest, AShortTextIsNotSharedOut) {
  const std::vector<TokenId> text(100, 1);
  const TextParts parts = SplitText(text);
  EXPECT_FALSE(parts.are_apart());
  EXPECT_EQ(parts.first.size(), 100u);
  EXPECT_EQ(parts.last.size(), 100u);
  EXPECT_TRUE(SplitText({}).first.empty());
}

}  // namespace
}  // namespace hearth
