#include "base/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

using Ledger = std::map<std::string, uint64_t>;

TEST(Budget, CountsWhatIsInForce) {
  Budget budget(100);
  EXPECT_EQ(budget.limit_bytes(), 100u);
  BudgetCharge weights = budget.Charge("weights", 60);
  {
    BudgetCharge cache = budget.Charge("cache", 30);
    EXPECT_EQ(cache.bytes(), 30u);
    EXPECT_EQ(budget.used_bytes(), 90u);
    EXPECT_EQ(budget.Ledger(), (Ledger{{"weights", 60}, {"cache", 30}}));
  }
  EXPECT_EQ(budget.used_bytes(), 60u);
  EXPECT_EQ(budget.peak_bytes(), 90u);
  EXPECT_EQ(budget.Ledger(), (Ledger{{"weights", 60}}));
  weights.Release();
  weights.Release();  // a second time does nothing
  EXPECT_EQ(weights.bytes(), 0u);
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_TRUE(budget.Ledger().empty());
}

TEST(Budget, AddsChargesOfOneName) {
  Budget budget;
  const BudgetCharge a = budget.Charge("x", 1);
  BudgetCharge b = budget.Charge("x", 2);
  EXPECT_EQ(budget.Ledger(), (Ledger{{"x", 3}}));
  b.Release();
  EXPECT_EQ(budget.Ledger(), (Ledger{{"x", 1}}));
}

TEST(Budget, RefusesWhatDoesNotFitAndEntersNothing) {
  Budget budget(100);
  const BudgetCharge held = budget.Charge("weights", 60);
  try {
    budget.Charge("kv cache", 41);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_STREQ(error.what(),
                 "memory budget: kv cache needs 41 B, but only 40 B of 100 B are left");
  }
  EXPECT_EQ(budget.used_bytes(), 60u);
  EXPECT_EQ(budget.Ledger(), (Ledger{{"weights", 60}}));
  EXPECT_THROW(budget.Charge("x", UINT64_MAX), Error);
  EXPECT_NO_THROW(budget.Charge("x", 40));
}

TEST(Budget, UnlimitedStillRefusesASumOver64Bits) {
  Budget budget;
  const BudgetCharge held = budget.Charge("x", UINT64_MAX - 1);
  EXPECT_THROW(budget.Charge("y", 2), Error);
}

TEST(BudgetCharge, IsGivenBackOnceWhenMoved) {
  Budget budget(100);
  BudgetCharge a = budget.Charge("a", 10);
  BudgetCharge b = std::move(a);
  EXPECT_EQ(a.bytes(), 0u);  // NOLINT: a moved-from charge is empty by contract
  EXPECT_EQ(b.bytes(), 10u);
  BudgetCharge c = budget.Charge("c", 20);
  c = std::move(b);  // gives 20 back
  EXPECT_EQ(budget.Ledger(), (Ledger{{"a", 10}}));
  c = BudgetCharge();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(Budget, MayBeUsedFromSeveralThreads) {
  Budget budget(1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget] {
      for (int i = 0; i < 1000; ++i) {
        const BudgetCharge charge = budget.Charge("shared", 100);
        EXPECT_LE(budget.used_bytes(), 400u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_LE(budget.peak_bytes(), 400u);
}

}  // namespace
}  // namespace hearth
