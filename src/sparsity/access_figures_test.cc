#include "sparsity/access_figures.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

AccessSequence Sequence(const std::vector<std::vector<int32_t>>& tokens, int64_t neurons) {
  AccessSequence sequence;
  sequence.num_layers = 1;
  sequence.num_neurons = neurons;
  for (const auto& token : tokens) {
    for (const int32_t neuron : token) sequence.Append(neuron);
    sequence.EndBatch();
    sequence.EndPass();
  }
  return sequence;
}

TEST(AccessFiguresTest, OfNeuronsThatNeverChange) {
  const AccessFigures figures = FiguresOf(Sequence({{0, 1}, {0, 1}, {0, 1}, {0, 1}}, 10));
  EXPECT_DOUBLE_EQ(figures.active, 0.2);
  EXPECT_DOUBLE_EQ(figures.hot_share, 0.2);
  EXPECT_DOUBLE_EQ(figures.found, 1);
}

// The cache holds two of four, and what is asked for is always what left it.
TEST(AccessFiguresTest, OfNeuronsThatTakeTurns) {
  const AccessFigures figures = FiguresOf(Sequence({{0}, {1}, {2}, {3}, {0}, {1}, {2}, {3}}, 4));
  EXPECT_DOUBLE_EQ(figures.active, 0.25);
  EXPECT_DOUBLE_EQ(figures.hot_share, 1);  // three carry 75%
  EXPECT_DOUBLE_EQ(figures.found, 0);
}

// Of eight tokens the first two fill the cache; of the others one misses one of two.
TEST(AccessFiguresTest, TheFirstQuarterDoesNotCount) {
  std::vector<std::vector<int32_t>> tokens(8, {0, 1});
  tokens[5] = {0, 2};
  EXPECT_DOUBLE_EQ(FiguresOf(Sequence(tokens, 8)).found, 5.5 / 6);
}

TEST(AccessFiguresTest, ExpertsHaveASmallerCache) {
  AccessSequence sequence;
  sequence.unit = AccessUnit::kExperts;
  sequence.num_layers = 1;
  sequence.num_experts = 10;
  for (int i = 0; i < 12; ++i) {
    sequence.Append(i % 3);  // one more than the cache holds
    sequence.EndBatch();
    sequence.EndPass();
  }
  const AccessFigures figures = FiguresOf(sequence);
  EXPECT_DOUBLE_EQ(figures.active, 0.1);
  EXPECT_DOUBLE_EQ(figures.hot_share, 0.3);
  EXPECT_DOUBLE_EQ(figures.found, 0);
}

TEST(AccessFiguresTest, RefusesTooFewTokens) {
  EXPECT_THROW(FiguresOf(Sequence({{0}, {1}, {2}}, 4)), Error);
}

}  // namespace
}  // namespace hearth
