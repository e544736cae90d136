#include "measure/statistics.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(StatisticsTest, PercentilesInterpolateBetweenNeighbours) {
  EXPECT_EQ(Percentile({}, 0.5), 0);
  EXPECT_EQ(Percentile({7}, 0.99), 7);
  EXPECT_EQ(Percentile({3, 1, 2}, 0), 1);
  EXPECT_EQ(Percentile({3, 1, 2}, 1), 3);
  EXPECT_DOUBLE_EQ(Percentile({10, 20, 30, 40, 50}, 0.9), 46);
  EXPECT_DOUBLE_EQ(Percentile({1, 2}, 0.25), 1.25);
}

TEST(StatisticsTest, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(Median({5, 1, 9}), 5);
  EXPECT_EQ(Median({5, 1, 9, 7}), 6);
}

TEST(StatisticsTest, Mean) {
  EXPECT_EQ(Mean({}), 0);
  const std::vector<double> values = {1, 2, 6};
  EXPECT_EQ(Mean(values), 3);
}

TEST(StatisticsTest, SpreadNamesTheEnds) {
  const Spread spread = SpreadOf({4, 8, 6});
  EXPECT_EQ(spread.median, 6);
  EXPECT_EQ(spread.min, 4);
  EXPECT_EQ(spread.max, 8);
}

}  // namespace
}  // namespace hearth
