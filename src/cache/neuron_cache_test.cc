#include "cache/neuron_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "base/error.h"
#include "cache/test_caches.h"

namespace hearth {
namespace {

// The cache under test and its model, driven together by random look-ups, completions, failures and
// releases. Every answer must agree, and no two keys may ever hold one slot.
class Comparison {
 public:
  Comparison(const NeuronCacheOptions& options, uint64_t seed)
      : options_(options),
        cache_(budget_, options, {}),
        slow_(MakeSlowPolicy(options)),
        words_(seed) {}

  void Seed(const std::vector<int32_t>& keys) {
    std::vector<int32_t> slots(keys.size());
    const int64_t count = cache_.Seed(keys, slots);
    ASSERT_EQ(count, std::min<int64_t>(options_.num_slots, static_cast<int64_t>(keys.size())));
    for (int64_t i = count; i-- > 0;) {
      const auto at = static_cast<size_t>(i);
      slow_->Seed(keys[at], i, count);
      slots_[keys[at]] = slots[at];
    }
  }

  void Lookup(int64_t size) {
    Open open;
    const auto room = static_cast<uint64_t>(options_.num_keys / options_.num_layers);
    const uint64_t layer = words_.NextBelow(static_cast<uint64_t>(options_.num_layers));
    open.first = static_cast<int32_t>(layer * room);
    std::set<int32_t> offsets;
    for (int64_t i = 0; i < size; ++i) {
      // Skewed: the lower an offset, the more often.
      const uint64_t below = 1 + words_.NextBelow(room);
      offsets.insert(static_cast<int32_t>(words_.NextBelow(below)));
    }
    open.offsets.assign(offsets.begin(), offsets.end());
    open.entries.resize(open.offsets.size());
    cache_.Lookup({open.first, open.offsets}, open.entries);
    ExpectAsModel(open);
    open_.push_back(std::move(open));
  }

  // Completes, fails and releases some of what is open.
  void Settle(int percent) {
    for (auto it = loading_.begin(); it != loading_.end();) {
      const bool ends = Chance(percent);
      const int32_t key = *it;
      if (ends && Chance(10)) {
        cache_.Failed(key);
        slow_->Remove(key);
        slots_.erase(key);
        held_.erase(held_.find(key));
        EXPECT_EQ(cache_.state(key), CacheState::kAbsent);
      } else if (ends) {
        cache_.Loaded(key);
        held_.erase(held_.find(key));
      }
      it = ends ? loading_.erase(it) : std::next(it);
    }
    for (size_t i = 0; i < open_.size();) {
      if (!Chance(percent)) {
        ++i;
        continue;
      }
      const Open& open = open_[i];
      cache_.Release({open.first, open.offsets}, open.entries);
      for (size_t j = 0; j < open.entries.size(); ++j) {
        if (open.entries[j].slot >= 0) held_.erase(held_.find(open.first + open.offsets[j]));
      }
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void EndToken() {
    cache_.EndToken();
    slow_->EndToken();
    while (const auto key = slow_->TakeExpired(held_)) slots_.erase(*key);
  }

  void ExpectStates() {
    for (int32_t key = 0; key < options_.num_keys; ++key) {
      const bool holds = slots_.count(key) > 0;
      const CacheState state = cache_.state(key);
      ASSERT_EQ(state != CacheState::kAbsent, holds) << key;
      ASSERT_EQ(state == CacheState::kLoading, loading_.count(key) > 0) << key;
      ASSERT_EQ(state == CacheState::kInUse,
                holds && loading_.count(key) == 0 && held_.count(key) > 0)
          << key;
    }
    ASSERT_EQ(cache_.num_resident(), static_cast<int64_t>(slots_.size() - loading_.size()));
  }

 private:
  struct Open {
    int32_t first = 0;
    std::vector<int32_t> offsets;
    std::vector<CacheEntry> entries;
  };

  bool Chance(int percent) { return words_.NextBelow(100) < static_cast<uint64_t>(percent); }

  void ExpectAsModel(const Open& open) {
    const size_t size = open.offsets.size();
    std::vector<CacheFound> found(size, CacheFound::kNoSlot);
    for (size_t i = 0; i < size; ++i) {
      const int32_t key = open.first + open.offsets[i];
      if (slots_.count(key) == 0) continue;
      found[i] = loading_.count(key) > 0 ? CacheFound::kPending : CacheFound::kHit;
      held_.insert(key);
    }
    slow_->BeginBatch(open.first);
    for (size_t i = 0; i < size; ++i) {
      if (found[i] != CacheFound::kNoSlot) slow_->Touch(open.first + open.offsets[i]);
    }
    for (size_t i = 0; i < size; ++i) {
      const int32_t key = open.first + open.offsets[i];
      if (found[i] == CacheFound::kNoSlot && Admit(key, open.entries[i])) {
        found[i] = CacheFound::kMiss;
      }
      ASSERT_EQ(open.entries[i].found, found[i]) << "key " << key;
      if (found[i] == CacheFound::kNoSlot) {
        ASSERT_EQ(open.entries[i].slot, -1);
      } else {
        ASSERT_EQ(open.entries[i].slot, slots_[key]) << "key " << key;
      }
    }
  }

  // The model's turn with an absent key.
  bool Admit(int32_t key, const CacheEntry& entry) {
    if (!slow_->Admits(key)) return false;
    if (static_cast<int64_t>(slots_.size()) == options_.num_slots) {
      const auto victim = slow_->TakeVictim(held_);
      if (!victim) return false;
      slots_.erase(*victim);
    }
    for (const auto& [other, slot] : slots_) {
      EXPECT_NE(slot, entry.slot) << "keys " << other << " and " << key;
    }
    EXPECT_GE(entry.slot, 0);
    EXPECT_LT(entry.slot, options_.num_slots);
    slots_[key] = entry.slot;
    slow_->Insert(key);
    loading_.insert(key);
    held_.insert(key);  // the read
    held_.insert(key);  // the look-up
    return true;
  }

  NeuronCacheOptions options_;
  Budget budget_;
  NeuronCache cache_;
  std::unique_ptr<SlowPolicy> slow_;
  RandomWords words_;
  std::vector<Open> open_;
  std::map<int32_t, int32_t> slots_;
  std::set<int32_t> loading_;
  std::multiset<int32_t> held_;  // once per pin
};

class EveryPolicy : public testing::TestWithParam<CachePolicyKind> {};

TEST_P(EveryPolicy, AgreesWithItsModelOnRandomBatches) {
  for (const int64_t slots : {1, 2, 7, 20, 60, 100}) {
    for (const int settle : {30, 100}) {
      SCOPED_TRACE(testing::Message() << slots << " slots, settling " << settle << "%");
      Comparison comparison(
          {.num_keys = 100, .num_slots = slots, .num_layers = 4, .policy = GetParam()},
          static_cast<uint64_t>(slots * 1000 + settle));
      for (int step = 0; step < 300 && !HasFatalFailure(); ++step) {
        comparison.Lookup(1 + step % 23);
        comparison.Settle(settle);
        if (step % 5 == 4) comparison.EndToken();
        if (step % 20 == 0) comparison.ExpectStates();
      }
    }
  }
}

TEST_P(EveryPolicy, AgreesWithItsModelAfterAWarmStart) {
  for (const int64_t slots : {1, 5, 30, 50}) {
    SCOPED_TRACE(testing::Message() << slots << " slots");
    Comparison comparison(
        {.num_keys = 50, .num_slots = slots, .num_layers = 5, .policy = GetParam()},
        static_cast<uint64_t>(slots));
    std::vector<int32_t> keys(35);
    std::iota(keys.begin(), keys.end(), 3);
    comparison.Seed(keys);
    comparison.ExpectStates();
    for (int step = 0; step < 200 && !HasFatalFailure(); ++step) {
      comparison.Lookup(1 + step % 11);
      comparison.Settle(60);
      if (step % 4 == 3) comparison.EndToken();
    }
  }
}

std::string PolicyTestName(const testing::TestParamInfo<CachePolicyKind>& info) {
  std::string name(CachePolicyName(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(NeuronCache, EveryPolicy,
                         testing::ValuesIn(AllCachePolicies().begin(), AllCachePolicies().end()),
                         PolicyTestName);

TEST(NeuronCache, ChargesItsTables) {
  Budget budget;
  const NeuronCacheOptions options = {.num_keys = 1000, .num_slots = 10};
  const NeuronCache cache(budget, options, {});
  EXPECT_EQ(budget.used_bytes(), NeuronCache::TableBytes(options));
}

TEST(NeuronCache, RefusesSizesThatMakeNoSense) {
  Budget budget;
  std::vector<std::byte> memory(100);
  EXPECT_THROW(NeuronCache(budget, {.num_keys = 0, .num_slots = 1}, {}), Error);
  EXPECT_THROW(NeuronCache(budget, {.num_keys = 4, .num_slots = 0}, {}), Error);
  EXPECT_THROW(NeuronCache(budget, {.num_keys = 4, .num_slots = 5}, {}), Error);
  EXPECT_THROW(NeuronCache(budget, {.num_keys = 4, .num_slots = 1, .num_layers = 3}, {}), Error);
  EXPECT_THROW(NeuronCache(budget, {.num_keys = 9, .num_slots = 4, .slot_bytes = 26}, memory),
               Error);
  EXPECT_THROW(
      NeuronCache(budget, {.num_keys = 9, .num_slots = 4, .slot_bytes = SIZE_MAX / 2}, memory),
      Error);
  const NeuronCache fits(budget, {.num_keys = 9, .num_slots = 4, .slot_bytes = 25}, memory);
  EXPECT_EQ(fits.SlotBytes(3).data(), memory.data() + 75);
}

TEST(NeuronCache, KeepsWhatIsLoadingThoughItWasReleased) {
  Budget budget;
  NeuronCache cache(budget, {.num_keys = 3, .num_slots = 1, .policy = CachePolicyKind::kLru}, {});
  const std::vector<int32_t> first = {0}, second = {1};
  std::vector<CacheEntry> entries(1), other(1);
  EXPECT_EQ(cache.Lookup({0, first}, entries), 1);
  EXPECT_EQ(entries[0].found, CacheFound::kMiss);
  cache.Release({0, first}, entries);
  cache.Lookup({0, second}, other);
  EXPECT_EQ(other[0].found, CacheFound::kNoSlot);
  cache.Release({0, second}, other);
  cache.Loaded(0);
  EXPECT_EQ(cache.state(0), CacheState::kResident);
  cache.Lookup({0, second}, other);
  EXPECT_EQ(other[0].found, CacheFound::kMiss);
  EXPECT_EQ(cache.state(0), CacheState::kAbsent);
  EXPECT_EQ(cache.counts().evictions, 1);
  EXPECT_EQ(cache.counts().no_slot, 1);
}

TEST(NeuronCache, WindowForgetsWhatTheLastFiveTokensDidNotUse) {
  Budget budget;
  NeuronCache cache(budget, {.num_keys = 9, .num_slots = 9, .policy = CachePolicyKind::kWindow},
                    {});
  const std::vector<int32_t> often = {0}, once = {1};
  std::vector<CacheEntry> entries(1);
  const auto use = [&](const std::vector<int32_t>& keys) {
    if (cache.Lookup({0, keys}, entries) > 0) cache.Loaded(keys[0]);
    cache.Release({0, keys}, entries);
  };
  use(once);
  for (int token = 0; token < 5; ++token) {
    use(often);
    cache.EndToken();
    EXPECT_EQ(cache.state(1), CacheState::kResident) << token;
  }
  cache.EndToken();
  EXPECT_EQ(cache.state(1), CacheState::kAbsent) << "although there is room";
  EXPECT_EQ(cache.state(0), CacheState::kResident);
  EXPECT_EQ(cache.num_resident(), 1);
}

TEST(NeuronCache, AnswersAKeyThatIsTwiceInABatch) {
  Budget budget;
  NeuronCache cache(budget, {.num_keys = 3, .num_slots = 2, .policy = CachePolicyKind::kLru}, {});
  const std::vector<int32_t> keys = {2, 2};
  std::vector<CacheEntry> entries(2);
  cache.Lookup({0, keys}, entries);
  EXPECT_EQ(entries[0].found, CacheFound::kMiss);
  EXPECT_EQ(entries[1].found, CacheFound::kPending);
  EXPECT_EQ(entries[0].slot, entries[1].slot);
  cache.Loaded(2);
  EXPECT_EQ(cache.state(2), CacheState::kInUse);
  cache.Release({0, keys}, entries);
  EXPECT_EQ(cache.state(2), CacheState::kResident);
}

}  // namespace
}  // namespace hearth
