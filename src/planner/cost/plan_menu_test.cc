#include "planner/cost/plan_menu.h"

#include <gtest/gtest.h>

#include <random>

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
                          1 + static_cast<uint64_t>(below(4)), uint64_t{1} << (28 + below(8))});
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
      const MenuChoice expected = SearchMenu(menu, limits, goal);
      const MenuChoice actual = SolveMenu(menu, limits, goal);
      ASSERT_EQ(actual.entry.has_value(), expected.entry.has_value()) << trial;
      if (!expected.entry) {
        ++refused;
        continue;
      }
      ++found;
      EXPECT_EQ(menu[*actual.entry].token_us, menu[*expected.entry].token_us) << trial;
      EXPECT_EQ(menu[*actual.entry].prompt_us, menu[*expected.entry].prompt_us) << trial;
      EXPECT_EQ(menu[*actual.entry].bytes, menu[*expected.entry].bytes) << trial;
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
    EXPECT_EQ(solve(menu, {}, MenuGoal::kFastest).entry, 1u);
    EXPECT_EQ(solve(menu, {.most_token_us = 1005}, MenuGoal::kFastest).entry, 0u);
    EXPECT_EQ(solve(menu, {}, MenuGoal::kLeastMemory).entry, 0u);
  }
}

TEST(PlanMenuTest, NamesTheLimitsThatContradictEachOther) {
  const std::vector<MenuEntry> menu = {{1, 0, 0, 0, 100, 7, 1000}, {2, 0, 0, 1, 10, 7, 9000}};
  const auto conflict = [&](const MenuLimits& limits) {
    return SolveMenu(menu, limits, MenuGoal::kFastest).conflict;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(conflict({.most_threads = 4, .most_bytes = 5000, .most_token_us = 50}),
            (Names{"memory", "speed"}));
  EXPECT_EQ(conflict({.most_threads = 1, .most_bytes = 20000, .most_token_us = 50}),
            (Names{"threads", "speed"}));
  EXPECT_EQ(conflict({.most_threads = 4, .most_bytes = 5, .most_token_us = 5000}),
            (Names{"memory"}));
  EXPECT_FALSE(SolveMenu({}, {}, MenuGoal::kFastest).entry);
}

}  // namespace
}  // namespace hearth
