#include "cache/belady.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/random_words.h"
#include "cache/neuron_cache.h"

namespace hearth {
namespace {

struct Batches {
  int64_t num_keys = 0;
  std::vector<int32_t> keys;
  std::vector<size_t> ends;
};

Batches RandomBatches(int64_t num_keys, int count, uint64_t seed) {
  RandomWords words(seed);
  Batches batches{.num_keys = num_keys};
  for (int b = 0; b < count; ++b) {
    for (int32_t key = 0; key < num_keys; ++key) {
      if (words.NextBelow(3) == 0) batches.keys.push_back(key);
    }
    batches.ends.push_back(batches.keys.size());
  }
  return batches;
}

// Tries every set that could be held after every batch.
class Exhaustive {
 public:
  Exhaustive(const Batches& batches, int num_slots) : num_slots_(num_slots) {
    size_t at = 0;
    for (const size_t end : batches.ends) {
      uint32_t keys = 0;
      for (; at < end; ++at) keys |= 1u << batches.keys[at];
      batches_.push_back(keys);
    }
  }

  int MostHits(size_t batch = 0, uint32_t held = 0) {
    if (batch == batches_.size()) return 0;
    const auto [known, is_new] = known_.try_emplace({batch, held}, 0);
    if (!is_new) return known->second;
    const uint32_t at_hand = held | batches_[batch];
    int most = 0;
    for (uint32_t next = at_hand;; next = (next - 1) & at_hand) {
      if (std::popcount(next) <= num_slots_) most = std::max(most, MostHits(batch + 1, next));
      if (next == 0) break;
    }
    return known_[{batch, held}] = most + std::popcount(held & batches_[batch]);
  }

 private:
  const int num_slots_;
  std::vector<uint32_t> batches_;
  std::map<std::pair<size_t, uint32_t>, int> known_;
};

TEST(BeladyBound, IsWhatAnExhaustiveSearchFinds) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Batches batches = RandomBatches(6, 9, seed);
    const BeladyBound bound(batches.keys, batches.ends, batches.num_keys);
    for (int slots = 0; slots <= 6; ++slots) {
      EXPECT_EQ(bound.Hits(slots), Exhaustive(batches, slots).MostHits())
          << slots << " slots, seed " << seed;
    }
  }
}

TEST(BeladyBound, NoPolicyHitsMore) {
  const Batches batches = RandomBatches(40, 300, 7);
  const BeladyBound bound(batches.keys, batches.ends, batches.num_keys);
  for (const CachePolicyKind policy : AllCachePolicies()) {
    for (const int64_t slots : {1, 5, 15, 30, 40}) {
      Budget budget;
      NeuronCache cache(budget, {.num_keys = 40, .num_slots = slots, .policy = policy}, {});
      size_t begin = 0;
      for (const size_t end : batches.ends) {
        const auto keys = std::span(batches.keys).subspan(begin, end - begin);
        std::vector<CacheEntry> entries(keys.size());
        cache.Lookup({0, keys}, entries);
        for (const int32_t key : keys) cache.Loaded(key);
        cache.Release({0, keys}, entries);
        begin = end;
      }
      EXPECT_LE(cache.counts().hits, bound.Hits(slots)) << CachePolicyName(policy) << slots;
      EXPECT_EQ(cache.counts().accesses(), static_cast<int64_t>(batches.keys.size()));
    }
  }
}

TEST(BeladyBound, WithRoomForAllOnlyFirstUsesMiss) {
  const Batches batches = RandomBatches(20, 50, 3);
  const BeladyBound bound(batches.keys, batches.ends, batches.num_keys);
  EXPECT_EQ(bound.Hits(20), static_cast<int64_t>(batches.keys.size()) - 20);
}

// Tokens that ask for the same: layers of 3, 5 and 2 keys.
int64_t LruHits(int64_t num_slots) {
  Budget budget;
  NeuronCache cache(budget,
                    {.num_keys = 10, .num_slots = num_slots, .policy = CachePolicyKind::kLru}, {});
  const std::vector<std::vector<int32_t>> layers = {{0, 1, 2}, {3, 4, 5, 6, 7}, {8, 9}};
  for (int token = 0; token < 5; ++token) {
    for (const auto& keys : layers) {
      std::vector<CacheEntry> entries(keys.size());
      cache.Lookup({0, keys}, entries);
      for (const int32_t key : keys) cache.Loaded(key);
      cache.Release({0, keys}, entries);
    }
  }
  return cache.counts().hits;
}

TEST(WorkingSet, SaysBelowWhichSizeLruHitsNothing) {
  const std::vector<int64_t> layers = {3, 5, 2};
  const WorkingSet set = WorkingSetOf(layers);
  EXPECT_EQ(set.keys, 10);
  EXPECT_EQ(set.lru_hits_nothing, 5);
  EXPECT_EQ(LruHits(set.lru_hits_nothing), 0);
  EXPECT_GT(LruHits(set.lru_hits_nothing + 1), 0);
  EXPECT_EQ(LruHits(set.keys), 40);
}

}  // namespace
}  // namespace hearth
