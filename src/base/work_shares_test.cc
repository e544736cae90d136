#include "base/work_shares.h"

#include <gtest/gtest.h>

#include <thread>

namespace hearth {
namespace {

TEST(WorkSharesTest, OneWorkerCanTakeEverythingInPieces) {
  for (const int64_t units : {1, 2, 7, 100, 12345}) {
    WorkShares shares(3);
    shares.Deal(units);
    std::vector<int> seen(static_cast<size_t>(units));
    while (const auto range = shares.Take(1)) {
      ASSERT_LT(range->begin, range->end);
      for (int64_t i = range->begin; i < range->end; ++i) ++seen[static_cast<size_t>(i)];
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
    EXPECT_FALSE(shares.Take(0));
  }
}

TEST(WorkSharesTest, ConcurrentWorkersTakeEverythingOnce) {
  WorkShares shares(4);
  for (int round = 0; round < 50; ++round) {
    shares.Deal(5000);
    std::vector<std::atomic<int>> seen(5000);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < 4; ++worker) {
      threads.emplace_back([&, worker] {
        while (const auto range = shares.Take(worker)) {
          for (int64_t i = range->begin; i < range->end; ++i) ++seen[static_cast<size_t>(i)];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& times : seen) ASSERT_EQ(times.load(), 1);
  }
}

TEST(WorkSharesTest, SharesFollowMeasuredSpeeds) {
  WorkShares shares(2);
  for (int section = 0; section < 100; ++section) {
    shares.Deal(400);
    shares.Report(0, 300, 1'000'000);
    shares.Report(1, 100, 1'000'000);
    shares.UpdateSpeeds();
  }
  EXPECT_NEAR(shares.speed(0), 1.5, 0.01);
  EXPECT_NEAR(shares.speed(1), 0.5, 0.01);
  shares.Deal(400);
  // A first piece is a quarter of the own share.
  EXPECT_EQ(shares.Take(1)->begin, 300);
  EXPECT_EQ(shares.Take(0)->end, 75);
}

TEST(WorkSharesTest, AWorkerThatDidNothingKeepsASmallShare) {
  WorkShares shares(2);
  for (int section = 0; section < 1000; ++section) {
    shares.Deal(100);
    shares.Report(0, 100, 1'000'000);
    shares.Report(1, 0, 1'000'000);
    shares.UpdateSpeeds();
  }
  EXPECT_GT(shares.speed(1), 0);
  EXPECT_LT(shares.speed(1), 0.1);
}

TEST(WorkSharesTest, ShortSectionsTellNothing) {
  WorkShares shares(2);
  shares.Deal(10);
  shares.Report(0, 9, 1000);
  shares.Report(1, 1, 1000);
  shares.UpdateSpeeds();
  EXPECT_EQ(shares.speed(0), 1.0);
  EXPECT_EQ(shares.speed(1), 1.0);
}

}  // namespace
}  // namespace hearth
