#include "pipeline/processor_loss.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

constexpr double kList = 1e-3;  // seconds

// How many of so many lists are waited for asleep, where threads lose `lost` seconds in every
// `every`-th list that they look in.
int CountAsleep(ProcessorLoss& loss, int lists, int every, double lost) {
  int asleep = 0, looked = 0;
  for (int i = 0; i < lists; ++i) {
    if (loss.is_asleep()) {
      ++asleep;
      loss.Add(kList, 0);
    } else {
      loss.Add(kList, ++looked % every == 0 ? lost : 0);
    }
  }
  return asleep;
}

TEST(ProcessorLossTest, GapsOfACalmMachineChangeNothing) {
  ProcessorLoss loss({});
  EXPECT_EQ(CountAsleep(loss, 10000, 30, 2.5e-3), 0);  // 8% of the time
  EXPECT_EQ(CountAsleep(loss, 10000, 1, 0.9e-4), 0);
}

TEST(ProcessorLossTest, OneLongGapIsSoonForgotten) {
  ProcessorLoss loss({});
  loss.Add(kList, 5e-3);
  EXPECT_TRUE(loss.is_asleep());
  EXPECT_EQ(CountAsleep(loss, 10000, 1, 0), ProcessorLoss::kFewestAsleep);
}

// Another program on each processor has every second turn.
TEST(ProcessorLossTest, ALoadIsSleptThrough) {
  ProcessorLoss loss({});
  EXPECT_GT(CountAsleep(loss, 20000, 4, 4e-3), 19900);
}

TEST(ProcessorLossTest, ALoadThatEndsIsNoticed) {
  ProcessorLoss loss({});
  CountAsleep(loss, 20000, 4, 4e-3);
  EXPECT_LE(CountAsleep(loss, 50000, 1, 0), ProcessorLoss::kMostAsleep);
  EXPECT_FALSE(loss.is_asleep());
  // And the next one begins as the first.
  loss.Add(kList, 5e-3);
  EXPECT_EQ(CountAsleep(loss, 10000, 1, 0), ProcessorLoss::kFewestAsleep);
}

}  // namespace
}  // namespace hearth
