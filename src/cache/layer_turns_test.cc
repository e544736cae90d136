#include "cache/layer_turns.h"

#include <gtest/gtest.h>

namespace hearth::cache {
namespace {

TEST(LayerTurns, BeginWithAnotherLayerOrToken) {
  LayerTurns turns(30, 3);
  EXPECT_TRUE(turns.Begin(0));
  EXPECT_FALSE(turns.Begin(9));
  EXPECT_TRUE(turns.goes_on());
  EXPECT_TRUE(turns.Begin(10));
  EXPECT_FALSE(turns.goes_on());
  EXPECT_EQ(turns.current(), 1);
  EXPECT_TRUE(turns.Begin(29));
  turns.EndToken();
  EXPECT_TRUE(turns.Begin(20));
}

TEST(LayerTurns, LookBackAroundTheModel) {
  LayerTurns turns(30, 3);
  turns.Begin(15);
  EXPECT_EQ(turns.Back(0), 1);
  EXPECT_EQ(turns.Back(1), 0);
  EXPECT_EQ(turns.Back(2), 2);
  EXPECT_EQ(turns.Back(3), 1);
}

TEST(LayerTurns, OfOneLayerBeginWithTokens) {
  LayerTurns turns(5, 1);
  EXPECT_TRUE(turns.Begin(4));
  EXPECT_FALSE(turns.Begin(0));
  turns.EndToken();
  EXPECT_TRUE(turns.Begin(0));
  EXPECT_EQ(turns.Back(1), 0);
}

}  // namespace
}  // namespace hearth::cache
