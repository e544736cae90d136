#include "cache/hit_densities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace hearth::cache {
namespace {

using ::testing::ElementsAre;

void EndTokens(HitDensities& densities, int count) {
  for (int i = 0; i < count; ++i) densities.EndToken();
}

TEST(HitDensities, BeginAsTheyAreTakenFor) {
  const HitDensities densities(std::array{0.3, 0.1, 0.2, 0.1});
  EXPECT_THAT(densities.order(), ElementsAre(1, 3, 2, 0));
  EXPECT_DOUBLE_EQ(densities.density(2), 0.2);
}

TEST(HitDensities, LearnWhatIsUsed) {
  HitDensities densities(std::array{0.5, 0.1});
  for (int token = 0; token < 40; ++token) {
    densities.Offer(0, 100);
    densities.Offer(1, 100);
    densities.Hit(0);
    for (int i = 0; i < 30; ++i) densities.Hit(1);
    densities.EndToken();
  }
  EXPECT_NEAR(densities.density(0), 0.01, 0.01);
  EXPECT_NEAR(densities.density(1), 0.3, 0.01);
  EXPECT_THAT(densities.order(), ElementsAre(0, 1));
}

TEST(HitDensities, ForgetWhatWas) {
  HitDensities densities(std::array{0.5, 0.1});
  for (const int hits : {90, 5}) {
    for (int token = 0; token < 600; ++token) {
      densities.Offer(0, 100);
      for (int i = 0; i < hits; ++i) densities.Hit(0);
      densities.EndToken();
    }
    EXPECT_NEAR(densities.density(0), hits / 100.0, 0.01);
  }
  EXPECT_THAT(densities.order(), ElementsAre(0, 1));
}

TEST(HitDensities, KeepTheirOrderForFourTokens) {
  HitDensities densities(std::array{0.1, 0.2});
  densities.Offer(1, 1000);
  EndTokens(densities, 3);
  EXPECT_THAT(densities.order(), ElementsAre(0, 1));
  EndTokens(densities, 1);
  EXPECT_THAT(densities.order(), ElementsAre(1, 0));
}

}  // namespace
}  // namespace hearth::cache
