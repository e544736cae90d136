#include "prepare/predict/predictor_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "prepare/predict/neuron_shifts.h"

namespace hearth {
namespace {

struct Scored {
  Budget budget;
  FloatMatrix scores, mass;

  // Scores that say something of the mass, with ties among them.
  Scored(int64_t tokens, int64_t neurons, unsigned seed)
      : scores(budget, tokens, neurons), mass(budget, tokens, neurons) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < mass.values().size(); ++i) {
      const float x = normal(random);
      mass.values()[i] = x > 1 ? x - 1 : 0;
      scores.values()[i] = std::round((x + 0.3f * normal(random)) * 8) / 8;
    }
  }
};

TEST(PredictorTrialTest, ThresholdsAreTheHighestThatFindEnough) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const Scored s(13, 57, seed);
    for (const double recall : {0.5, 0.9, 0.99, 1.0}) {
      const float threshold = ThresholdFor(s.scores, s.mass, recall);
      EXPECT_GE(Judge(s.scores, s.mass, threshold).recall, recall - 1e-12);
      // Any threshold at or above the next score finds less.
      float next = 1e30f;
      for (const float score : s.scores.values()) {
        if (score > threshold) next = std::min(next, score);
      }
      EXPECT_LT(Judge(s.scores, s.mass, next).recall, recall);
    }
  }
}

TEST(PredictorTrialTest, FiguresAreCounts) {
  Budget budget;
  FloatMatrix scores(budget, 2, 3), mass(budget, 2, 3);
  const float score_values[] = {1, 5, 3, 0, 7, 2};
  const float mass_values[] = {0, 2, 6, 0, 0, 2};
  std::copy(std::begin(score_values), std::end(score_values), scores.values().begin());
  std::copy(std::begin(mass_values), std::end(mass_values), mass.values().begin());
  const TrialFigures figures = Judge(scores, mass, 2);
  EXPECT_DOUBLE_EQ(figures.active, 0.5);
  EXPECT_DOUBLE_EQ(figures.listed, 0.5);
  EXPECT_DOUBLE_EQ(figures.recall, 0.8);
  EXPECT_DOUBLE_EQ(figures.precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(figures.listed_ratio(), 1);
}

TEST(PredictorTrialTest, WithoutActiveNeuronsNothingIsMissed) {
  Budget budget;
  const FloatMatrix scores(budget, 2, 3), mass(budget, 2, 3);
  const TrialFigures figures = Judge(scores, mass, ThresholdFor(scores, mass, 0.99));
  EXPECT_EQ(figures.recall, 1);
  EXPECT_EQ(figures.listed, 0);
  EXPECT_EQ(figures.listed_ratio(), 0);
}

// Neurons whose scores mean different things: one common threshold lists too many of one or misses
// the other.
TEST(NeuronShiftsTest, NeuronsGetScoresOfTheirOwn) {
  constexpr int64_t kTokens = 2000;
  Budget budget;
  FloatMatrix scores(budget, kTokens, 3), mass(budget, kTokens, 3);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (int64_t t = 0; t < kTokens; ++t) {
    const float offsets[] = {0, 2, -2};
    for (int64_t n = 0; n < 3; ++n) {
      const float x = normal(random);
      scores.row(t)[n] = x + offsets[n];
      mass.row(t)[n] = x > 1 ? 1 : 0;
    }
  }
  WorkerTeam team(2);
  const std::vector<float> shifts = ListingScores(team, scores, mass, 0.99);
  FloatMatrix shifted(budget, kTokens, 3);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (size_t n = 0; n < 3; ++n) {
      shifted.row(t)[n] = scores.row(t)[n] - shifts[n];
    }
  }
  const TrialFigures common = Judge(scores, mass, ThresholdFor(scores, mass, 0.99));
  const TrialFigures own = Judge(shifted, mass, ThresholdFor(shifted, mass, 0.99));
  EXPECT_GT(common.listed_ratio(), 3);
  EXPECT_LT(own.listed_ratio(), 1.5);
  WorkerTeam alone(1);
  EXPECT_EQ(ListingScores(alone, scores, mass, 0.99), shifts);
}

TEST(NeuronShiftsTest, SilentNeuronsTakeTheCommonScore) {
  Scored s(50, 4, 5);
  for (int64_t t = 0; t < 50; ++t) s.mass.row(t)[2] = 0;
  WorkerTeam team(1);
  EXPECT_EQ(ListingScores(team, s.scores, s.mass, 0.9)[2], ThresholdFor(s.scores, s.mass, 0.9));
}

}  // namespace
}  // namespace hearth
