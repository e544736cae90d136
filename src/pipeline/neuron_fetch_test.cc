// Reading ahead, step by step; with whole pipelines and random schedules in streamed_ffns_test.cc
// and stream_stress_test.cc.
#include "pipeline/neuron_fetch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "pipeline/test_bundles.h"

namespace hearth {
namespace {

class NeuronFetchTest : public ::testing::Test {
 protected:
  // Everything of a list arrives.
  void Bring(int64_t ffn, const std::vector<int32_t>& list) {
    list_ = list;
    fetch_.Begin(ffn, list_);
    fetch_.Fetch(SlotPart::kAll);
    while (fetch_.ready().size() < std::ssize(list_)) fetch_.Poll(true);
    for (int64_t i = fetch_.num_resident(); i < fetch_.ready().size(); ++i) {
      fetch_.Settle(fetch_.ready().positions() + i, 1);
    }
  }
  // What is guessed of an FFN is read while another list is at hand. Begins to read what is
  // guessed; with `arrives`, all of it comes before the FFN's turn.
  void Guess(int64_t ffn, const std::vector<int32_t>& list, bool arrives = true) {
    fetch_.Expect(ffn, list);
    Bring(0, {2, 3});
    fetch_.ReadAhead();
    while (arrives && fetch_.is_reading_ahead()) fetch_.Poll(false);
    fetch_.End(-1);
  }
  void ExpectBundlesOf(int64_t ffn, const std::vector<int32_t>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      const auto slot = store_.Slots(fetch_.slots()[i], 1);
      const std::byte* bundle = model_.bytes().data() + model_.OffsetOf(ffn, list[i]);
      EXPECT_EQ(std::memcmp(slot.data(), bundle, slot.size()), 0) << list[i];
    }
  }

  std::vector<int32_t> list_;  // until End
  Budget budget_;
  TestBundles model_{{.layers = 3, .neurons = 256}, 1};
  BundleStore store_{budget_,
                     model_.Source(model_.File(budget_, 1)),
                     {.cache_slots = 64, .range_neurons = 64, .range_buffers = 2},
                     CachePolicyKind::kLru};
  NeuronFetch fetch_{budget_, store_, {.reads_ahead = true}};
};

TEST_F(NeuronFetchTest, WhatWasGuessedIsNotReadAgain) {
  const std::vector<int32_t> list = {1, 5, 9};
  Guess(1, list);
  EXPECT_EQ(fetch_.counts().reads_ahead, 3);
  const std::vector<int32_t> listed = {1, 4, 9};
  Bring(1, listed);
  ExpectBundlesOf(1, listed);
  fetch_.End(-1);
  EXPECT_EQ(fetch_.counts().used_ahead, 2);
  EXPECT_EQ(fetch_.counts().reads, 2 + 3 + 1);
  EXPECT_EQ(fetch_.counts().misses, 2 + 3);
}

// A file in memory begins a read when it is polled.
TEST_F(NeuronFetchTest, AGuessWhoseReadHasNotBegunIsReadAsWanted) {
  Guess(1, {1, 5, 9}, false);
  EXPECT_EQ(fetch_.counts().reads_ahead, 3);
  const std::vector<int32_t> listed = {1, 4, 9};
  Bring(1, listed);
  ExpectBundlesOf(1, listed);
  fetch_.End(-1);
  EXPECT_EQ(fetch_.counts().reads_ahead, 0);
  EXPECT_EQ(fetch_.counts().used_ahead, 0);
  EXPECT_EQ(fetch_.counts().reads, 2 + 3);
  EXPECT_EQ(fetch_.counts().bytes_read, 5 * store_.slot_bytes());
}

TEST_F(NeuronFetchTest, WhatWasReadAheadIsDrawnWhereItBelongs) {
  Guess(1, {1, 5});
  NeuronMap map(3, 1, 256);
  map.Begin(1);
  fetch_.Watch(&map);
  Bring(1, {1, 4, 200});
  fetch_.End(-1);
  EXPECT_EQ(fetch_.counts().used_ahead, 1);
  const auto read =
      map.counts(NeuronPlace::kRead)
          .subspan(static_cast<size_t>(map.num_columns()), static_cast<size_t>(map.num_columns()));
  for (int64_t column = 0; column < map.num_columns(); ++column) {
    const bool is_read = column == 1 / 2 || column == 4 / 2 || column == 200 / 2;
    EXPECT_EQ(read[static_cast<size_t>(column)], is_read ? 1 : 0) << column;
  }
}

TEST_F(NeuronFetchTest, NothingIsReadAheadBeforeTheListIsLookedUp) {
  const std::vector<int32_t> list = {2, 3};
  fetch_.Expect(1, list);
  fetch_.Begin(0, list);
  fetch_.ReadAhead();
  EXPECT_EQ(fetch_.counts().reads_ahead, 0);
  fetch_.Fetch(SlotPart::kAll);
  while (fetch_.ready().size() < 2) fetch_.Poll(true);
  fetch_.End(-1);
}

// Another thread may settle a neuron that has been in memory all the time.
TEST_F(NeuronFetchTest, SettlingWhatWasThereChangesNothing) {
  const std::vector<int32_t> list = {1, 5, 9};
  Guess(1, list);
  Bring(1, list);
  fetch_.End(-1);
  // The places of those are used for others.
  Guess(2, {20, 21, 22});
  Bring(2, {20, 21, 22});
  fetch_.End(-1);
  Bring(1, list);
  EXPECT_EQ(fetch_.num_resident(), 3);
  const int32_t positions[] = {0, 1, 2};
  fetch_.Settle(positions, 3);
  ExpectBundlesOf(1, list);
  fetch_.End(-1);
}

TEST_F(NeuronFetchTest, SeveralListsOfAnFfnShareAGuess) {
  Guess(1, {1, 5, 200});
  Bring(1, {1, 5});
  fetch_.End(-1);
  Bring(1, {200, 201});
  fetch_.End(-1);
  EXPECT_EQ(fetch_.counts().used_ahead, 3);
}

TEST_F(NeuronFetchTest, AGuessForWhatHasBegunIsDropped) {
  fetch_.Expect(1, std::vector<int32_t>{1, 5});
  Bring(1, {1, 5});
  fetch_.ReadAhead();
  fetch_.End(-1);
  EXPECT_EQ(fetch_.counts().reads_ahead, 0);
  fetch_.StopAhead();
  EXPECT_FALSE(fetch_.in_flight());
}

// Where half of the neurons are pinned and the cache has hardly a slot.
class PinnedNeuronFetchTest : public NeuronFetchTest {
 protected:
  static constexpr int64_t kPinned = 128;
  static constexpr StreamPlan kPlan = {
      .pinned_neurons = kPinned, .cache_slots = 1, .range_neurons = 64, .range_buffers = 2};

  std::vector<int32_t> All() const {
    std::vector<int32_t> all(256);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  BundleStore pinning_{budget_, model_.Source(model_.File(budget_, 1)), kPlan,
                       CachePolicyKind::kLru};
};

TEST_F(PinnedNeuronFetchTest, AListHoldsAllThatIsPinnedAndWhatSpareSlotsHoldOfTheRest) {
  NeuronFetch fetch(budget_, pinning_, {.reads_ahead = true});
  const int64_t others = kPlan.spare_slots() - 2 * fetch.sizes().ahead;
  ASSERT_LT(others, 256 - kPinned);
  const std::vector<int32_t> all = All();
  const std::span<const int32_t> listed = all;
  EXPECT_EQ(fetch.sizes().listed, kPinned + others);
  EXPECT_EQ(fetch.CountThatFits(listed), kPinned + others);
  EXPECT_EQ(fetch.CountThatFits(listed.subspan(100)), kPinned - 100 + others);
  EXPECT_EQ(fetch.CountThatFits(listed.subspan(kPinned)), others);
  EXPECT_EQ(fetch.CountThatFits(listed.first(kPinned + 1)), kPinned + 1);
  EXPECT_EQ(fetch.CountThatFits({}), 0);
}

TEST_F(PinnedNeuronFetchTest, TheLongestListsComeWhole) {
  NeuronFetch fetch(budget_, pinning_, {.reads_ahead = true});
  const std::vector<int32_t> all = All();
  int64_t lists = 0;
  for (std::span<const int32_t> left = all; !left.empty(); ++lists) {
    const auto listed = left.first(static_cast<size_t>(fetch.CountThatFits(left)));
    left = left.subspan(listed.size());
    fetch.Begin(1, listed);
    fetch.Fetch(SlotPart::kAll);
    while (fetch.ready().size() < std::ssize(listed)) fetch.Poll(true);
    for (size_t i = 0; i < listed.size(); ++i) {
      if (listed[i] < kPinned) continue;  // nobody has filled those slots
      const auto slot = pinning_.Slots(fetch.slots()[i], 1);
      const std::byte* bundle = model_.bytes().data() + model_.OffsetOf(1, listed[i]);
      EXPECT_EQ(std::memcmp(slot.data(), bundle, slot.size()), 0) << listed[i];
    }
    fetch.End(-1);
  }
  EXPECT_EQ(lists, 2);
  EXPECT_EQ(fetch.counts().pinned, kPinned);
}

}  // namespace
}  // namespace hearth
