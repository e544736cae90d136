#include "serve/allowance.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hearth::serve {
namespace {

constexpr size_t kSmall = Allowance::kSmallBytes;

TEST(AllowanceTest, LargeSharesLeaveAQuarterToSmallOnes) {
  const auto allowance = std::make_shared<Allowance>(8 * kSmall);
  AllowanceShare large(allowance), small(allowance), other(allowance);
  EXPECT_FALSE(large.Resize(6 * kSmall + 1));
  EXPECT_EQ(large.bytes(), 0u);
  EXPECT_TRUE(large.Resize(6 * kSmall));
  EXPECT_TRUE(small.Resize(kSmall));
  EXPECT_FALSE(small.Resize(kSmall + 1)) << "it would be a large one";
  EXPECT_EQ(small.bytes(), kSmall) << "nothing has changed";
  EXPECT_TRUE(other.Resize(kSmall));
  AllowanceShare late(allowance);
  EXPECT_FALSE(late.Resize(1));
  EXPECT_TRUE(large.Resize(5 * kSmall)) << "less is always granted";
  EXPECT_TRUE(late.Resize(kSmall));
  EXPECT_FALSE(late.Resize(SIZE_MAX));
}

TEST(AllowanceTest, SharesThatEndGiveBack) {
  const auto allowance = std::make_shared<Allowance>(kSmall);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(AllowanceShare(allowance).Resize(kSmall)) << i;
}

TEST(AllowanceTest, ThreadsNeverTakeMoreThanThereIs) {
  constexpr size_t kThreads = 4;
  const auto allowance = std::make_shared<Allowance>(kThreads - 1);
  std::atomic<int> holders{0}, most{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10000; ++round) {
        AllowanceShare share(allowance);
        if (!share.Resize(1)) continue;
        const int now = ++holders;
        int before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        --holders;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(most, static_cast<int>(kThreads));
  EXPECT_TRUE(AllowanceShare(allowance).Resize(kThreads - 1)) << "all of it is back";
}

}  // namespace
}  // namespace hearth::serve
