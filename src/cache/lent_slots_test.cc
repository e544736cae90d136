#include "cache/lent_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kSlotBytes = 1000;

class LentSlotsTest : public testing::Test {
 protected:
  // A cache of 3 slots and those over some pages.
  void Make(const LentPages& pages) {
    const int64_t slots = 3 + pages.SlotsOver(kSlotBytes);
    memory_ = Buffer(budget_, "test", static_cast<size_t>(slots) * kSlotBytes);
    const NeuronCacheOptions options = {.num_keys = slots,
                                        .num_slots = slots,
                                        .slot_bytes = kSlotBytes,
                                        .policy = CachePolicyKind::kLru};
    cache_ = std::make_unique<NeuronCache>(budget_, options,
                                           std::span(memory_.data(), memory_.size_bytes()));
    lent_.emplace(*cache_, pages, 3, [this] { ++takes_; });
  }
  // The slots that a page touches.
  int64_t Touched(const LentPages& pages, int64_t page) {
    const auto begin =
        lent_->pages() - memory_.data() + page * static_cast<int64_t>(pages.page_bytes);
    const auto end = begin + static_cast<int64_t>(pages.page_bytes);
    return (end + 999) / 1000 - begin / 1000;
  }

  Budget budget_;
  Buffer memory_;
  std::unique_ptr<NeuronCache> cache_;
  std::optional<LentSlots> lent_;
  int takes_ = 0;
};

TEST_F(LentSlotsTest, PagesLieInSlotsBehindTheCachesOwn) {
  for (const uint64_t page_bytes : {64, 999, 1000, 1001, 7000}) {
    const LentPages pages = {.count = 5, .page_bytes = page_bytes};
    Make(pages);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(lent_->pages()) % LentPages::kAlignment, 0u);
    EXPECT_GE(lent_->pages(), memory_.data() + 3 * kSlotBytes);
    EXPECT_LE(lent_->pages() + pages.bytes(), memory_.data() + memory_.size_bytes());
  }
}

TEST_F(LentSlotsTest, APageCostsTheSlotsThatItTouchesOnce) {
  for (const uint64_t page_bytes : {64, 999, 1000, 1001, 7000}) {
    const LentPages pages = {.count = 5, .page_bytes = page_bytes};
    Make(pages);
    const int64_t all = cache_->num_slots();
    for (const int64_t page : {3, 0, 4}) {
      lent_->Take(page);
      EXPECT_EQ(cache_->num_slots(), all - Touched(pages, page)) << page_bytes;
      lent_->Return(page);
      EXPECT_EQ(cache_->num_slots(), all);
    }
    for (const int64_t page : {2, 0, 1, 4, 3}) lent_->Take(page);
    EXPECT_EQ(cache_->num_slots(), all - Touched({.count = 1, .page_bytes = 5 * page_bytes}, 0));
    EXPECT_GE(cache_->num_slots(), 3 + pages.SlotsLeft(all - 3, kSlotBytes, 5));
    for (const int64_t page : {1, 2, 3, 0, 4}) lent_->Return(page);
    EXPECT_EQ(cache_->num_slots(), all);
  }
}

TEST_F(LentSlotsTest, AContextCannotGrowIntoSlotsInUse) {
  Make({.count = 2, .page_bytes = 3000});
  std::vector<int32_t> keys(static_cast<size_t>(cache_->num_slots()));
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<CacheEntry> entries(keys.size());
  cache_->Lookup({0, keys}, entries);
  for (const int32_t key : keys) cache_->Loaded(key);
  const int64_t all = cache_->num_slots();
  try {
    lent_->Take(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot grow"));
  }
  EXPECT_EQ(cache_->num_slots(), all);
  cache_->Release({0, keys}, entries);
  lent_->Take(0);
  EXPECT_LT(cache_->num_slots(), all);
  EXPECT_EQ(takes_, 2);
}

}  // namespace
}  // namespace hearth
