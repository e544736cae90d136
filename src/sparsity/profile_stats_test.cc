#include "sparsity/profile_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace hearth {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ProfileStatsTest, TheSmallestSetIsTheHeaviestOnes) {
  const std::vector<double> weights = {1, 0, 5, 3, 1, 0};
  EXPECT_THAT(SmallestCarryingSet(weights, 0), IsEmpty());
  EXPECT_THAT(SmallestCarryingSet(weights, 0.5), ElementsAre(2));
  EXPECT_THAT(SmallestCarryingSet(weights, 0.8), ElementsAre(2, 3));
  EXPECT_THAT(SmallestCarryingSet(weights, 0.81), ElementsAre(2, 3, 0));
  EXPECT_THAT(SmallestCarryingSet(weights, 1), ElementsAre(2, 3, 0, 4)) << "zeros carry nothing";
  EXPECT_DOUBLE_EQ(CarryingShare(weights, 0.8), 2.0 / 6);
  EXPECT_THAT(SmallestCarryingSet(std::vector<double>(4), 0.8), IsEmpty());
  EXPECT_EQ(CarryingShare(std::vector<double>(4), 0.8), 0);
  EXPECT_EQ(CarryingShare({}, 0.8), 0);
}

TEST(ProfileStatsTest, NoSetOfThatSizeOrSmallerCarriesMore) {
  std::mt19937 random(5);
  for (size_t n = 1; n <= 12; ++n) {
    std::vector<double> weights(n);
    for (double& w : weights) w = static_cast<double>(random() % 20);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const double share : {0.1, 0.5, 0.8, 0.99, 1.0}) {
      size_t best = 0;  // by trying all sets
      for (uint32_t set = 0; total > 0 && set < 1u << n; ++set) {
        double sum = 0;
        for (size_t i = 0; i < n; ++i) sum += (set >> i & 1) != 0 ? weights[i] : 0;
        const auto size = static_cast<size_t>(__builtin_popcount(set));
        if (sum >= share * total && (best == 0 || size < best)) best = size;
      }
      EXPECT_EQ(SmallestCarryingSet(weights, share).size(), best) << n << " " << share;
    }
  }
}

TEST(ProfileStatsTest, CumulativeSharesRiseFromNothingToAll) {
  EXPECT_THAT(CumulativeShares(std::vector<double>{1, 3}, 4),
              ElementsAre(0, 0.375, 0.75, 0.875, 1));
  EXPECT_THAT(CumulativeShares(std::vector<double>{2, 2, 2}, 3),
              ElementsAre(0, DoubleNear(1.0 / 3, 1e-12), DoubleNear(2.0 / 3, 1e-12), 1));
  EXPECT_THAT(CumulativeShares(std::vector<double>(5), 4), Each(0));
  EXPECT_THAT(CumulativeShares({}, 2), Each(0));
  std::vector<double> weights(1000);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i * i % 97);
  const std::vector<double> shares = CumulativeShares(weights, 37);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_NEAR(shares.back(), 1, 1e-12);
}

TEST(ProfileStatsTest, BinsAreMeansOfTheSorted) {
  EXPECT_THAT(SortedBins(std::vector<double>{1, 4, 2, 3}, 2), ElementsAre(3.5, 1.5));
  EXPECT_THAT(SortedBins(std::vector<double>{1, 2}, 4), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(SortedBins({}, 4), IsEmpty());
}

ModelProfile SmallProfile() {
  ModelProfile profile;
  profile.activation = FfnActivation::kRelu;
  profile.num_layers = 2;
  profile.num_experts = 2;
  profile.intermediate_size = 2;
  profile.ffns = {{10, {5, 10}, {5, 8}, {1, 2}, {1, 1}},
                  {0, {0, 0}, {0, 0}, {0, 0}, {1, 1}},
                  {4, {4, 0}, {2, 0}, {6, 0}, {0.5f, 1}},
                  {6, {3, 3}, {3, 0}, {1, 0}, {7, 1}}};
  return profile;
}

TEST(ProfileStatsTest, SummariesCountWhatWasComputed) {
  const ModelProfile profile = SmallProfile();
  const ActivationSummary first = Summarize(profile, 0);
  EXPECT_EQ(first.neurons, 4);
  EXPECT_DOUBLE_EQ(first.gate_rate, 15.0 / 20) << "the unused expert computed nothing";
  EXPECT_DOUBLE_EQ(first.active_rate, 13.0 / 20);
  EXPECT_EQ(first.never_active, 2);
  EXPECT_DOUBLE_EQ(first.co_active, 13.0 / 15);
  EXPECT_DOUBLE_EQ(first.co_active_cold, 0) << "two neurons carry all activations";
  EXPECT_EQ(first.unused_experts, 1);
  EXPECT_DOUBLE_EQ(first.hot_activations, 0.5);
  const ActivationSummary all = Summarize(profile, -1);
  EXPECT_EQ(all.neurons, 8);
  EXPECT_DOUBLE_EQ(all.gate_rate, 25.0 / 40);
  EXPECT_DOUBLE_EQ(all.active_rate, 18.0 / 40);
  EXPECT_DOUBLE_EQ(all.co_active, 18.0 / 25);
  EXPECT_DOUBLE_EQ(all.co_active_cold, 2.0 / 7) << "8, 5 and 3 of 18 are the hot ones";
  EXPECT_EQ(all.never_active, 4);
  EXPECT_EQ(all.unused_experts, 1);
  EXPECT_DOUBLE_EQ(Summarize(profile, 1).hot_output, 0.5) << "7 of 10 are not enough";
  EXPECT_THAT(NeuronWeights(profile, 1, NeuronWeight::kOutput), ElementsAre(3, 0, 7, 0));
  EXPECT_THAT(NeuronWeights(profile, 1, NeuronWeight::kActivations), ElementsAre(2, 0, 3, 0));
  EXPECT_THAT(ActiveRates(profile, 0), ElementsAre(0.5, 0.8, 0, 0));
  EXPECT_THAT(GateRates(profile, 1), ElementsAre(1, 0, 0.5, 0.5));
}

}  // namespace
}  // namespace hearth
