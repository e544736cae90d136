#include "ops/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace hearth {
namespace {

TEST(ExpertsTest, RoutesToTheMostLikelyAndSharesTheWeight) {
  Compute compute("auto", 1);
  std::vector<float> logits = {0, 2, 1, -1,  // token 0: experts 1, 2
                               5, 5, 0, 5};  // token 1: ties go to the lower index: 0, 1
  std::vector<ExpertLoad> loads(4);
  RouteTokens(compute, {logits.data(), 2, 4, 4}, {.experts_per_token = 2}, loads);
  EXPECT_EQ(loads[0].tokens, (std::vector<int64_t>{1}));
  EXPECT_EQ(loads[1].tokens, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(loads[2].tokens, (std::vector<int64_t>{0}));
  EXPECT_TRUE(loads[3].tokens.empty());
  EXPECT_NEAR(loads[1].weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(loads[0].weights[0], 0.5, 1e-6);
}

TEST(ExpertsTest, KeepsProbabilitiesWhereTheyAreNotNormalized) {
  Compute compute("auto", 1);
  std::vector<float> logits = {0, 0, 0, 0};
  std::vector<ExpertLoad> loads(4);
  RouteTokens(compute, {logits.data(), 1, 4, 4},
              {.experts_per_token = 1, .normalize_weights = false, .weight_scale = 2}, loads);
  EXPECT_NEAR(loads[0].weights[0], 0.5, 1e-6) << "a quarter, scaled by two";
}

TEST(ExpertsTest, ABiasChoosesAndDoesNotWeigh) {
  Compute compute("auto", 1);
  std::vector<float> logits = {1, 0, -1, -8};
  const std::vector<float> bias = {0, 0, 0, 2};
  std::vector<ExpertLoad> loads(4);
  RouteTokens(
      compute, {logits.data(), 1, 4, 4},
      {.experts_per_token = 2, .sigmoid = true, .bias = bias.data(), .normalize_weights = false},
      loads);
  EXPECT_TRUE(loads[1].tokens.empty());
  EXPECT_TRUE(loads[2].tokens.empty());
  ASSERT_EQ(loads[3].tokens.size(), 1u);
  EXPECT_NEAR(loads[0].weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(loads[3].weights[0], 1 / (1 + std::exp(8.0)), 1e-6);
}

// The best expert's group has no other good one; groups of one are their expert.
TEST(ExpertsTest, ExpertsComeFromTheBestGroups) {
  Compute compute("auto", 1);
  const std::vector<float> logits = {3, -9, 1, 2, -5, -4};
  const auto chosen = [&](int64_t groups, int64_t used) {
    std::vector<float> copy = logits;
    std::vector<ExpertLoad> loads(6);
    RouteTokens(
        compute, {copy.data(), 1, 6, 6},
        {.experts_per_token = 2, .sigmoid = true, .groups = groups, .groups_per_token = used},
        loads);
    std::vector<size_t> experts;
    for (size_t e = 0; e < loads.size(); ++e) {
      if (!loads[e].tokens.empty()) experts.push_back(e);
    }
    return experts;
  };
  EXPECT_EQ(chosen(1, 1), (std::vector<size_t>{0, 3}));
  EXPECT_EQ(chosen(3, 1), (std::vector<size_t>{2, 3}));
  EXPECT_EQ(chosen(3, 2), (std::vector<size_t>{0, 3}));
  EXPECT_EQ(chosen(6, 2), (std::vector<size_t>{0, 3}));
}

TEST(ExpertsTest, GatherAndScatterAreInverse) {
  Compute compute("auto", 1);
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<float> packed(4), out(6, 10.0f);
  const std::vector<int64_t> rows = {2, 0};
  GatherRows({x.data(), 3, 2, 2}, rows, {packed.data(), 2, 2, 2});
  EXPECT_EQ(packed, (std::vector<float>{5, 6, 1, 2}));
  ScatterAddRows(compute, {packed.data(), 2, 2, 2}, rows, std::vector<float>{2, -1},
                 {out.data(), 3, 2, 2});
  EXPECT_EQ(out, (std::vector<float>{9, 8, 10, 10, 20, 22}));
}

}  // namespace
}  // namespace hearth
