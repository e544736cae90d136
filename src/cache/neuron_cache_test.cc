#include "cache/neuron_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

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
      Comparison comparison({.num_keys = 100,
                             .num_slots = slots,
                             .num_layers = 4,
                             .policy = GetParam(),
                             .window_tokens = static_cast<int32_t>(slots % 3)},
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
    Comparison comparison({.num_keys = 50,
                           .num_slots = slots,
                           .num_layers = 5,
                           .policy = GetParam(),
                           .window_tokens = static_cast<int32_t>(slots % 3)},
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

// Random look-ups while slots are lent and come back, with bytes: a slot has the number of its key.
class LendingCache {
 public:
  LendingCache(CachePolicyKind policy, uint64_t seed)
      : memory_(kSlots * sizeof(int32_t)),
        cache_(budget_,
               {.num_keys = kKeys,
                .num_slots = kSlots,
                .slot_bytes = sizeof(int32_t),
                .num_layers = kLayers,
                .policy = policy},
               memory_),
        words_(seed) {
    std::vector<int32_t> keys(kKeys), slots(kKeys);
    std::iota(keys.begin(), keys.end(), 0);
    const int64_t count = cache_.Seed(keys, slots);
    for (int64_t i = 0; i < count; ++i) {
      InSlot(slots[static_cast<size_t>(i)]) = keys[static_cast<size_t>(i)];
    }
  }

  void Token() {
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      std::vector<int32_t> offsets;
      for (int32_t i = 0; i < kKeys / kLayers; ++i) {
        if (words_.NextBelow(3) == 0) offsets.push_back(i);
      }
      std::vector<CacheEntry> entries(offsets.size());
      const KeyBatch batch = {layer * (kKeys / kLayers), offsets};
      cache_.Lookup(batch, entries);
      for (size_t i = 0; i < offsets.size(); ++i) {
        const int32_t key = batch.key(static_cast<int64_t>(i));
        if (entries[i].slot < 0) continue;
        ASSERT_EQ(lent_.count(entries[i].slot), 0u) << "key " << key;
        if (entries[i].found == CacheFound::kMiss) InSlot(entries[i].slot) = key;
        ASSERT_EQ(InSlot(entries[i].slot), key);
        if (entries[i].found == CacheFound::kMiss) cache_.Loaded(key);
      }
      if (words_.NextBelow(4) == 0) ExpectNothingInUseIsLent(entries);
      cache_.Release(batch, entries);
    }
    cache_.EndToken();
  }

  // Lends some slots, or takes back what was lent.
  void Lend() {
    const auto first = static_cast<int32_t>(words_.NextBelow(kSlots - 1));
    const auto count = static_cast<int32_t>(1 + words_.NextBelow(kSlots - 1 - first));
    if (!lent_.empty() && words_.NextBelow(2) == 0) {
      for (const int32_t slot : lent_) cache_.Restore(slot, 1);
      lent_.clear();
    } else if (lent_.empty()) {
      const int64_t before = cache_.num_resident();
      ASSERT_TRUE(cache_.Withdraw(first, count,
                                  [&](int32_t from, int32_t to) { InSlot(to) = InSlot(from); }));
      for (int32_t slot = first; slot < first + count; ++slot) {
        lent_.insert(slot);
        InSlot(slot) = -7;  // another's now
      }
      EXPECT_EQ(cache_.num_slots(), kSlots - count);
      EXPECT_EQ(cache_.num_resident(), std::min<int64_t>(before, kSlots - count));
    }
    for (int32_t key = 0; key < kKeys; ++key) {
      const int32_t slot = cache_.ResidentSlot(key);
      if (slot < 0) continue;
      ASSERT_EQ(lent_.count(slot), 0u);
      ASSERT_EQ(InSlot(slot), key);
    }
  }

 private:
  static constexpr int32_t kKeys = 60, kSlots = 40, kLayers = 3;

  int32_t& InSlot(int32_t slot) {
    return *reinterpret_cast<int32_t*>(memory_.data() +
                                       sizeof(int32_t) * static_cast<size_t>(slot));
  }
  void ExpectNothingInUseIsLent(const std::vector<CacheEntry>& entries) {
    for (const CacheEntry& entry : entries) {
      if (entry.slot < 0) continue;
      EXPECT_FALSE(cache_.Withdraw(entry.slot, 1, {}));
    }
  }

  Budget budget_;
  std::vector<std::byte> memory_;
  NeuronCache cache_;
  RandomWords words_;
  std::set<int32_t> lent_;
};

TEST_P(EveryPolicy, LendsSlotsAndKeepsWhatTheyHold) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    LendingCache cache(GetParam(), seed);
    for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
      cache.Token();
      cache.Lend();
    }
  }
}

TEST(NeuronCache, ThePolicyChoosesWhatLentSlotsCost) {
  Budget budget;
  NeuronCache cache(budget, {.num_keys = 8, .num_slots = 8, .policy = CachePolicyKind::kLru}, {});
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7}, hot = {0, 1, 2, 3};
  std::vector<CacheEntry> entries(all.size());
  cache.Lookup({0, all}, entries);
  for (const int32_t key : all) cache.Loaded(key);
  cache.Release({0, all}, entries);
  entries.resize(hot.size());
  cache.Lookup({0, hot}, entries);
  cache.Release({0, hot}, entries);
  // Slots of the hot ones.
  std::vector<int32_t> moved;
  ASSERT_TRUE(cache.Withdraw(0, 4, [&](int32_t from, int32_t /*to*/) { moved.push_back(from); }));
  EXPECT_EQ(moved, (std::vector<int32_t>{0, 1, 2, 3}));
  for (const int32_t key : hot) EXPECT_GE(cache.ResidentSlot(key), 4);
  for (const int32_t key : {4, 5, 6, 7}) EXPECT_EQ(cache.state(key), CacheState::kAbsent);
}

// Nine tenths of the slots are for keys that were used again, also of those that are left.
TEST(NeuronCache, SharesOfAPolicyAreOfTheSlotsThatAreLeft) {
  for (const CachePolicyKind policy : {CachePolicyKind::kTwoQueue, CachePolicyKind::kS3Fifo}) {
    constexpr int32_t kSlots = 100, kLeft = 20;
    Budget budget;
    NeuronCache cache(budget, {.num_keys = 3 * kSlots, .num_slots = kSlots, .policy = policy}, {});
    const auto use = [&](int32_t key) {
      CacheEntry entry;
      cache.Lookup({0, {&key, 1}}, {&entry, 1});
      cache.Loaded(key);
      cache.Release({0, {&key, 1}}, {&entry, 1});
    };
    // Uses new keys, and returns how many of the first ones are still there.
    const auto left_after = [&](int32_t first, int32_t count) {
      for (int32_t key = first; key < first + count; ++key) use(key);
      int32_t left = 0;
      for (int32_t key = 0; key < kSlots; ++key) left += cache.ResidentSlot(key) >= 0 ? 1 : 0;
      return left;
    };
    for (int32_t i = 0; i < 2 * kSlots; ++i) use(i % kSlots);
    ASSERT_TRUE(cache.Withdraw(kLeft, kSlots - kLeft, [](int32_t, int32_t) {}));
    EXPECT_EQ(left_after(kSlots, kLeft), kLeft * 9 / 10) << CachePolicyName(policy);
    cache.Restore(kLeft, kSlots - kLeft);
    for (int32_t i = 0; i < 2 * kSlots; ++i) use(i % kSlots);
    EXPECT_EQ(left_after(2 * kSlots, kSlots), kSlots * 9 / 10) << CachePolicyName(policy);
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

// One key a call.
void UseKeys(NeuronCache& cache, const std::vector<int32_t>& keys) {
  for (const int32_t key : keys) {
    CacheEntry entry;
    if (cache.Lookup({0, {&key, 1}}, {&entry, 1}) > 0) cache.Loaded(key);
    cache.Release({0, {&key, 1}}, {&entry, 1});
  }
}

TEST(NeuronCache, AWindowOfFiveTokensForgetsWhatTheyDidNotUse) {
  Budget budget;
  NeuronCache cache(
      budget,
      {.num_keys = 9, .num_slots = 9, .policy = CachePolicyKind::kWindow, .window_tokens = 5}, {});
  UseKeys(cache, {1});
  for (int token = 0; token < 5; ++token) {
    UseKeys(cache, {0});
    cache.EndToken();
    EXPECT_EQ(cache.state(1), CacheState::kResident) << token;
  }
  cache.EndToken();
  EXPECT_EQ(cache.state(1), CacheState::kAbsent) << "although there is room";
  EXPECT_EQ(cache.state(0), CacheState::kResident);
  EXPECT_EQ(cache.num_resident(), 1);
}

TEST(NeuronCache, AWindowHoldsAsManyTokensAsThereIsRoomFor) {
  Budget budget;
  NeuronCache cache(budget, {.num_keys = 9, .num_slots = 6, .policy = CachePolicyKind::kWindow},
                    {});
  UseKeys(cache, {0, 1, 2});
  cache.EndToken();
  for (int token = 0; token < 20; ++token) {
    UseKeys(cache, {3});
    cache.EndToken();
  }
  EXPECT_EQ(cache.num_resident(), 4) << "there is room for all";
  UseKeys(cache, {4, 5, 2});
  cache.EndToken();
  EXPECT_EQ(cache.num_resident(), 6);
  UseKeys(cache, {6});
  cache.EndToken();
  // The first token is out, with all that only it used.
  for (const int32_t key : {0, 1}) EXPECT_EQ(cache.state(key), CacheState::kAbsent) << key;
  for (const int32_t key : {2, 3, 4, 5, 6}) EXPECT_EQ(cache.state(key), CacheState::kResident);
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
