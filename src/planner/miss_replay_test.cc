#include "planner/miss_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

constexpr int64_t kLayers = 3, kNeurons = 256, kTokens = 40;
const StreamShape kShape = {.num_ffns = kLayers,
                            .neurons = kNeurons,
                            .bundle_bytes = 512,
                            .gate_bytes = 68,
                            .half_bytes = 256};

// Neurons that fire more often come first, as in a packed file.
AccessSequence RandomAccesses() {
  AccessSequence sequence;
  sequence.num_layers = kLayers;
  sequence.num_neurons = kNeurons;
  std::mt19937 random(3);
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t neuron = 0; neuron < kNeurons; ++neuron) {
        if (random() % 256 < static_cast<uint64_t>(128 / (1 + neuron / 16))) {
          sequence.Append(static_cast<int32_t>(layer * kNeurons + neuron));
        }
      }
      sequence.EndBatch();
    }
    sequence.EndPass();
  }
  return sequence;
}

StreamPlan PlanWith(int64_t pinned, int64_t slots) {
  return {.pinned_neurons = pinned, .cache_slots = slots, .range_neurons = 64, .range_buffers = 2};
}

TEST(MissReplayTest, PinnedNeuronsNeverMissAndOthersDoByRoom) {
  const AccessSequence sequence = RandomAccesses();
  const auto misses = [&](int64_t pinned, int64_t slots) {
    return ReplayMisses(sequence, kShape, PlanWith(pinned, slots), CachePolicyKind::kLayerLfu, 10)
        .misses_per_token();
  };
  EXPECT_EQ(misses(kNeurons, 1), 0);
  EXPECT_EQ(misses(0, kLayers * kNeurons), 0);  // warm from the start
  EXPECT_GT(misses(0, 64), misses(0, 256));
  EXPECT_GT(misses(64, 64), misses(128, 64));
  // All but the pinned ones, where there is as good as no cache.
  const MissReplay bare = ReplayMisses(sequence, kShape, PlanWith(64, 1), CachePolicyKind::kLru, 0);
  int64_t outside = 0;
  for (const int32_t key : sequence.keys()) outside += key % kNeurons >= 64 ? 1 : 0;
  EXPECT_NEAR(bare.misses_per_token() * kTokens, static_cast<double>(outside), kTokens * kLayers);
}

TEST(MissReplayTest, CountsEveryFfnOfTheTokensThatCount) {
  const AccessSequence sequence = RandomAccesses();
  const MissReplay replay =
      ReplayMisses(sequence, kShape, PlanWith(64, 100), CachePolicyKind::kLru, 15);
  EXPECT_EQ(replay.tokens, kTokens - 15);
  ASSERT_EQ(std::ssize(replay.ffns), replay.tokens * kLayers);
  const int64_t first = 15 * kLayers;
  for (int64_t i = 0; i < std::ssize(replay.ffns); ++i) {
    const FfnAccess& ffn = replay.ffns[static_cast<size_t>(i)];
    EXPECT_EQ(ffn.listed, std::ssize(sequence.batch(first + i)));
    EXPECT_LE(ffn.misses, ffn.listed);
  }
  EXPECT_GT(replay.miss_rate(), 0);
  EXPECT_LT(replay.miss_rate(), 1);
  // At least one token is counted.
  EXPECT_EQ(ReplayMisses(sequence, kShape, PlanWith(64, 100), CachePolicyKind::kLru, 1000).tokens,
            1);
}

// Layers that are alike speak for each other.
TEST(MissReplayTest, SomeLayersSpeakForAll) {
  constexpr int64_t kMany = 12;
  const AccessSequence three = RandomAccesses();
  AccessSequence sequence;
  sequence.num_layers = kMany;
  sequence.num_neurons = kNeurons;
  for (int64_t i = 0; i + 4 <= three.num_batches(); i += 4) {
    for (int64_t layer = 0; layer < kMany; ++layer) {
      for (const int32_t key : three.batch(i + layer % 4)) {
        sequence.Append(static_cast<int32_t>(layer * kNeurons + key % kNeurons));
      }
      sequence.EndBatch();
    }
    sequence.EndPass();
  }
  StreamShape shape = kShape;
  shape.num_ffns = kMany;
  const auto replayed = [&](int64_t step) {
    return ReplayMisses(sequence, shape, PlanWith(64, kMany * 40), CachePolicyKind::kLayerLfu, 8,
                        step);
  };
  const MissReplay all = replayed(1);
  EXPECT_EQ(all.weight, 1);
  for (const int64_t step : {2, 3, 5, 12, 100}) {
    const MissReplay some = replayed(step);
    EXPECT_EQ(some.tokens, all.tokens);
    EXPECT_NEAR(static_cast<double>(some.ffns.size()) * some.weight,
                static_cast<double>(all.ffns.size()), 1e-6)
        << step;
    EXPECT_NEAR(some.listed_per_token() / all.listed_per_token(), 1, 0.05) << step;
    EXPECT_NEAR(some.misses_per_token() / all.misses_per_token(), 1, 0.15) << step;
  }
}

TEST(MissReplayTest, RefusesAnotherModelsAccessesAndSenselessPlans) {
  const AccessSequence sequence = RandomAccesses();
  StreamShape other = kShape;
  other.num_ffns = kLayers + 1;
  EXPECT_THROW(ReplayMisses(sequence, other, PlanWith(64, 10), CachePolicyKind::kLru, 0), Error);
  EXPECT_THROW(ReplayMisses(sequence, kShape, PlanWith(63, 10), CachePolicyKind::kLru, 0), Error);
  EXPECT_THROW(ReplayMisses(sequence, kShape, PlanWith(64, 0), CachePolicyKind::kLru, 0), Error);
}

}  // namespace
}  // namespace hearth
