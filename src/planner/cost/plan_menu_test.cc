#include "planner/cost/plan_menu.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

namespace hearth {
namespace {

std::vector<MenuEntry> RandomMenu(std::mt19937& random) {
  std::vector<MenuEntry> menu;
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int threads = 1 + below(3), strategies = 1 + below(2), splits = 1 + below(3),
            budgets = 1 + below(3);
  for (int t = 1; t <= threads; ++t) {
    for (int s = 0; s < strategies; ++s) {
      for (int p = 0; p < splits; ++p) {
        for (int b = 0; b < budgets; ++b) {
          if (below(5) == 0) continue;  // menus have gaps
          menu.push_back({t, s, p, b, 1 + static_cast<uint64_t>(below(40)),
                          1 + static_cast<uint64_t>(below(4)), uint64_t{1} << (28 + below(8)),
                          below(2)});
        }
      }
    }
  }
  return menu;
}

// Enumeration is the oracle: the same goal is reached, whichever of equal entries it is.
TEST(PlanMenuTest, SolverFindsWhatEnumerationFinds) {
  std::mt19937 random(5);
  int found = 0, refused = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const std::vector<MenuEntry> menu = RandomMenu(random);
    MenuLimits limits;
    if (random() % 2 == 0) limits.most_threads = 1 + static_cast<int>(random() % 3);
    if (random() % 2 == 0) limits.most_bytes = uint64_t{1} << (28 + random() % 8);
    if (random() % 2 == 0) limits.most_token_us = 1 + random() % 40;
    for (const MenuGoal goal : {MenuGoal::kFastest, MenuGoal::kLeastMemory}) {
      const std::optional<size_t> expected = SearchMenu(menu, limits, goal);
      const std::optional<size_t> actual = SolveMenu(menu, limits, goal);
      ASSERT_EQ(actual.has_value(), expected.has_value()) << trial;
      if (!expected) {
        ++refused;
        continue;
      }
      ++found;
      EXPECT_EQ(menu[*actual].token_us, menu[*expected].token_us) << trial;
      EXPECT_EQ(menu[*actual].prompt_us, menu[*expected].prompt_us) << trial;
      EXPECT_EQ(menu[*actual].bytes, menu[*expected].bytes) << trial;
    }
  }
  EXPECT_GT(found, 10);
  EXPECT_GT(refused, 3);
}

// Where flash bounds decoding, threads still make prompts faster.
TEST(PlanMenuTest, OfEqualSpeedsTheOneWithFasterPrompts) {
  const std::vector<MenuEntry> menu = {
      {1, 0, 0, 0, 1000, 40, 1000}, {2, 0, 0, 0, 1010, 20, 1001}, {3, 0, 0, 0, 1011, 10, 1001}};
  for (const auto& solve : {SolveMenu, SearchMenu}) {
    EXPECT_EQ(solve(menu, {}, MenuGoal::kFastest), 1u);
    EXPECT_EQ(solve(menu, {.most_token_us = 1005}, MenuGoal::kFastest), 0u);
    EXPECT_EQ(solve(menu, {}, MenuGoal::kLeastMemory), 0u);
  }
}

// Both ways of choosing are held against a menu whose best entry is known, wherever it stands.
TEST(PlanMenuTest, TheBestIsFoundWhereverItStands) {
  std::vector<MenuEntry> menu;
  for (int split = 0; split < 8; ++split) menu.push_back({2, 1, split, 0, 500, 9, 700});
  for (size_t fastest = 0; fastest < menu.size(); ++fastest) {
    const size_t smallest = (fastest + 3) % menu.size();
    std::vector<MenuEntry> one = menu;
    one[fastest].token_us = 400;
    one[smallest].bytes = 600;
    for (const auto& choose : {SolveMenu, SearchMenu}) {
      EXPECT_EQ(choose(one, {}, MenuGoal::kFastest), fastest);
      EXPECT_EQ(choose(one, {}, MenuGoal::kLeastMemory), smallest);
      EXPECT_EQ(choose(one, {.most_bytes = 600}, MenuGoal::kFastest), smallest);
      EXPECT_EQ(choose(one, {.most_token_us = 450}, MenuGoal::kLeastMemory), fastest);
    }
  }
}

using Limits = std::vector<MenuLimit>;
constexpr MenuLimit kThreads = MenuLimit::kThreads, kMemory = MenuLimit::kMemory,
                    kSpeed = MenuLimit::kSpeed;

TEST(PlanMenuTest, NamesTheLimitsThatContradictEachOther) {
  const std::vector<MenuEntry> menu = {{1, 0, 0, 0, 100, 7, 1000}, {2, 0, 0, 1, 10, 7, 9000}};
  for (const auto& conflict : {SolveConflict, SearchConflict}) {
    EXPECT_EQ(conflict(menu, {.most_threads = 4, .most_bytes = 5000, .most_token_us = 50}),
              (Limits{kMemory, kSpeed}));
    EXPECT_EQ(conflict(menu, {.most_threads = 1, .most_bytes = 20000, .most_token_us = 50}),
              (Limits{kThreads, kSpeed}));
    EXPECT_EQ(conflict(menu, {.most_threads = 4, .most_bytes = 5, .most_token_us = 5000}),
              (Limits{kMemory}));
    EXPECT_EQ(conflict(menu, {.most_token_us = 5}), (Limits{kSpeed}));
    EXPECT_EQ(conflict(menu, {.most_threads = 1, .most_token_us = 100}), Limits{});
    EXPECT_EQ(conflict({}, {.most_threads = 1}), Limits{});
  }
  EXPECT_FALSE(SolveMenu({}, {}, MenuGoal::kFastest));
}

// More of either would do; only together they are too little.
TEST(PlanMenuTest, ThreeLimitsMayContradictEachOther) {
  const std::vector<MenuEntry> menu = {
      {1, 0, 0, 0, 100, 7, 1000}, {2, 0, 0, 0, 10, 7, 1000}, {1, 0, 0, 1, 10, 7, 9000}};
  for (const auto& conflict : {SolveConflict, SearchConflict}) {
    EXPECT_EQ(conflict(menu, {.most_threads = 1, .most_bytes = 1000, .most_token_us = 10}),
              (Limits{kThreads, kMemory, kSpeed}));
  }
}

TEST(PlanMenuTest, SolverNamesTheConflictsThatEnumerationNames) {
  std::mt19937 random(6);
  int conflicts = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const std::vector<MenuEntry> menu = RandomMenu(random);
    const MenuLimits limits = {.most_threads = 1 + static_cast<int>(random() % 2),
                               .most_bytes = uint64_t{1} << (28 + random() % 4),
                               .most_token_us = 1 + random() % 10};
    const Limits expected = SearchConflict(menu, limits);
    EXPECT_EQ(SolveConflict(menu, limits), expected) << trial;
    EXPECT_EQ(expected.empty(),
              menu.empty() || SearchMenu(menu, limits, MenuGoal::kFastest).has_value());
    if (!expected.empty()) ++conflicts;
  }
  EXPECT_GT(conflicts, 5);
}

}  // namespace
}  // namespace hearth
