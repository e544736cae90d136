#include "planner/cost/miss_replay.h"

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
    return ReplayMisses(sequence, kShape, PlanWith(pinned, slots), CachePolicyKind::kLayerLfu, {10})
        .misses_per_token();
  };
  EXPECT_EQ(misses(kNeurons, 1), 0);
  EXPECT_EQ(misses(0, kLayers * kNeurons), 0);  // warm from the start
  EXPECT_GT(misses(0, 64), misses(0, 256));
  EXPECT_GT(misses(64, 64), misses(128, 64));
  // All but the pinned ones, where there is as good as no cache.
  const MissReplay bare =
      ReplayMisses(sequence, kShape, PlanWith(64, 1), CachePolicyKind::kLru, {0});
  int64_t outside = 0;
  for (const int32_t key : sequence.keys()) outside += key % kNeurons >= 64 ? 1 : 0;
  EXPECT_NEAR(bare.misses_per_token() * kTokens, static_cast<double>(outside), kTokens * kLayers);
}

TEST(MissReplayTest, ReadsAheadWhatIsExpectedAndNotThere) {
  const AccessSequence sequence = RandomAccesses();
  StreamPlan plan = PlanWith(64, 100);
  plan.range_buffers = 64;  // many spare slots
  const auto replay = [&](const AccessSequence* guesses) {
    return ReplayMisses(sequence, kShape, plan, CachePolicyKind::kLru, {10, 1}, guesses);
  };
  // What will be listed, but for the first layers.
  const MissReplay none = replay(nullptr), right = replay(&sequence);
  ASSERT_EQ(right.ffns.size(), none.ffns.size());
  int64_t used = 0;
  for (size_t i = 0; i < right.ffns.size(); ++i) {
    EXPECT_EQ(right.ffns[i].misses, none.ffns[i].misses);
    EXPECT_EQ(none.ffns[i].ahead, 0);
    EXPECT_EQ(right.ffns[i].ahead, i % kLayers == 0 ? 0 : right.ffns[i].misses);
    EXPECT_EQ(right.ffns[i].used_ahead, right.ffns[i].ahead);
    used += right.ffns[i].used_ahead;
  }
  EXPECT_GT(used, 0);
  // What will not: as many reads as are not there, and none of use. Some lists are not guessed.
  AccessSequence wrong;
  wrong.num_layers = kLayers;
  wrong.num_neurons = kNeurons;
  for (int64_t i = 0; i < sequence.num_batches(); ++i) {
    const auto list = sequence.batch(i);
    const int64_t layer = i % kLayers;
    for (int64_t neuron = 0; neuron < kNeurons && (i % 5 != 4 || layer == 0); ++neuron) {
      const auto key = static_cast<int32_t>(layer * kNeurons + neuron);
      if (!std::binary_search(list.begin(), list.end(), key)) wrong.Append(key);
    }
    wrong.EndBatch();
    if (layer == kLayers - 1) wrong.EndPass();
  }
  const MissReplay unlucky = replay(&wrong);
  for (size_t i = 0; i < unlucky.ffns.size(); ++i) {
    const bool is_guessed = i % kLayers > 0 && (i + 10 * kLayers) % 5 != 4;
    EXPECT_EQ(unlucky.ffns[i].ahead > 0, is_guessed) << i;
    EXPECT_EQ(unlucky.ffns[i].used_ahead, 0);
    EXPECT_EQ(unlucky.ffns[i].misses, none.ffns[i].misses) << "the cache is not touched";
  }
  EXPECT_EQ(unlucky.misses_per_token(), none.misses_per_token());
  AccessSequence shorter = wrong;
  shorter.Append(0);
  shorter.EndBatch();
  shorter.EndPass();
  EXPECT_THROW(replay(&shorter), Error) << "of other tokens";
}

TEST(MissReplayTest, CountsEveryFfnOfTheTokensThatCount) {
  const AccessSequence sequence = RandomAccesses();
  const MissReplay replay =
      ReplayMisses(sequence, kShape, PlanWith(64, 100), CachePolicyKind::kLru, {15});
  EXPECT_EQ(replay.tokens, kTokens - 15);
  ASSERT_EQ(std::ssize(replay.ffns), replay.tokens * kLayers);
  const int64_t first = 15 * kLayers;
  for (int64_t i = 0; i < std::ssize(replay.ffns); ++i) {
    const FfnAccess& ffn = replay.ffns[static_cast<size_t>(i)];
    EXPECT_EQ(ffn.listed, std::ssize(sequence.batch(first + i)));
    EXPECT_LE(ffn.misses, ffn.listed);
    EXPECT_LE(ffn.next_to + ffn.one_between, std::max(ffn.misses - 1, 0));
  }
  EXPECT_GT(replay.miss_rate(), 0);
  EXPECT_LT(replay.miss_rate(), 1);
  // At least one token is counted.
  EXPECT_EQ(ReplayMisses(sequence, kShape, PlanWith(64, 100), CachePolicyKind::kLru, {1000}).tokens,
            1);
}

TEST(MissReplayTest, CountsMissesThatLieNextToOthers) {
  AccessSequence sequence;
  sequence.num_layers = kLayers;
  sequence.num_neurons = kNeurons;
  for (const int32_t neuron : {10, 64, 65, 66, 68, 71, 100, 101, 200, 202}) {
    sequence.Append(kNeurons + neuron);
  }
  sequence.EndBatch();
  sequence.EndPass();
  const MissReplay replay =
      ReplayMisses(sequence, kShape, PlanWith(64, 1), CachePolicyKind::kLru, {0});
  ASSERT_EQ(replay.ffns.size(), 1u);
  EXPECT_EQ(replay.ffns[0].pinned, 1);
  EXPECT_EQ(replay.ffns[0].misses, 9);
  EXPECT_EQ(replay.ffns[0].next_to, 3) << "65, 66, 101";
  EXPECT_EQ(replay.ffns[0].one_between, 2) << "68, 202";
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
    return ReplayMisses(sequence, shape, PlanWith(64, kMany * 40), CachePolicyKind::kLayerLfu,
                        {8, step});
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
  EXPECT_THROW(ReplayMisses(sequence, other, PlanWith(64, 10), CachePolicyKind::kLru, {0}), Error);
  EXPECT_THROW(ReplayMisses(sequence, kShape, PlanWith(63, 10), CachePolicyKind::kLru, {0}), Error);
  EXPECT_THROW(ReplayMisses(sequence, kShape, PlanWith(64, 0), CachePolicyKind::kLru, {0}), Error);
}

}  // namespace
}  // namespace hearth
