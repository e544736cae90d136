#include "pipeline/processor_share.h"

#include <gtest/gtest.h>

namespace hearth {
namespace {

constexpr int kThreads = 2;
constexpr double kJob = 1e-3;  // seconds

class ProcessorShareTest : public ::testing::Test {
 protected:
  // Runs jobs in which every thread waits for a processor for this share of the time; how many of
  // them were waited for asleep.
  int CountLoaded(int jobs, double share) {
    int loaded = 0;
    for (int i = 0; i < jobs; ++i) {
      share_.BeginJob(kThreads, now_ += kJob);
      loaded += share_.is_loaded() ? 1 : 0;
      delay_ += share * kJob;
      for (int worker = 0; worker < kThreads; ++worker) share_.Look(worker);
      share_.EndJob();
    }
    return loaded;
  }

  double now_ = 100, delay_ = 7;
  ProcessorShare share_{{.run_delay = [this] { return delay_; }}};
};

TEST_F(ProcessorShareTest, DelaysOfACalmMachineChangeNothing) {
  EXPECT_EQ(CountLoaded(1000, 0.08), 0);
}

TEST_F(ProcessorShareTest, ALoadIsSeenWithinTwoLooks) {
  CountLoaded(100, 0);
  EXPECT_GE(CountLoaded(1000, 0.5), 950);
  EXPECT_EQ(CountLoaded(1000, 0.06), 1000) << "less of it is still one";
  EXPECT_LE(CountLoaded(1000, 0), 50);
}

// What was before it, idle say, is not its load.
TEST_F(ProcessorShareTest, TheFirstLookSaysNothing) {
  delay_ = 1e6;
  EXPECT_EQ(CountLoaded(100, 0), 0);
}

TEST(ProcessorShareOfOtherSystemsTest, NothingIsALoadWhereNobodySays) {
  ProcessorShare share({.run_delay = [] { return std::optional<double>(); }, .look_seconds = 0});
  for (int i = 0; i < 10; ++i) {
    share.BeginJob(1, i);
    share.Look(0);
    share.EndJob();
    EXPECT_FALSE(share.is_loaded());
  }
}

}  // namespace
}  // namespace hearth
