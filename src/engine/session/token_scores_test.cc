#include "engine/session/token_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace hearth {
namespace {

TEST(TokenScoresTest, TheFirstOfTheLargestIsLikeliest) {
  const std::vector<float> logits = {-1, 3, 2, 3};
  EXPECT_EQ(LikeliestToken(logits), 1);
}

TEST(TokenScoresTest, TheScoreIsTheLogarithmOfTheShare) {
  const std::vector<float> equal(8, 5.0f);
  EXPECT_NEAR(NegativeLogLikelihood(equal, 3), std::log(8.0), 1e-12);
  const std::vector<float> two = {0, std::log(3.0f)};
  EXPECT_NEAR(NegativeLogLikelihood(two, 0), std::log(4.0), 1e-7);
  EXPECT_NEAR(NegativeLogLikelihood(two, 1), std::log(4.0 / 3.0), 1e-7);
}

TEST(TokenScoresTest, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e30f, -1e30f, 1e30f};
  EXPECT_NEAR(NegativeLogLikelihood(logits, 2), std::log(2.0), 1e-12);
  EXPECT_TRUE(std::isfinite(NegativeLogLikelihood(logits, 1)));
}

TEST(TokenScoresTest, ANumberThatIsNoneShows) {
  const std::vector<float> logits = {0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(NegativeLogLikelihood(logits, 0)));
}

}  // namespace
}  // namespace hearth
