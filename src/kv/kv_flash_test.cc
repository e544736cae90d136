#include "kv/kv_flash.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kv/kv_cache.h"
#include "storage/async/counting_file.h"
#include "storage/async/faulty_file.h"
#include "storage/async/file_decorator.h"

namespace hearth {
namespace {

// Parts of a page are no multiple of a disk's blocks.
const KvLayout kOddLayout{
    .codec = KvCodec::kF16, .num_layers = 5, .num_kv_heads = 3, .head_dim = 7};

UnnamedFile File(const KvLayout& layout, int64_t slots) {
  return OpenUnnamedFile(::testing::TempDir(), KvFlash::FileBytes(layout, slots));
}

std::vector<std::byte> RandomPage(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> page(kOddLayout.page_bytes());
  for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  return page;
}

TEST(KvFlashTest, KeepsPagesWholeAndInPieces) {
  Budget budget(KvFlash::ChargedBytes(kOddLayout, 4));
  KvFlash flash(budget, kOddLayout, 4, File(kOddLayout, 4));
  EXPECT_EQ(budget.used_bytes(), KvFlash::ChargedBytes(kOddLayout, 4));
  std::vector<std::vector<std::byte>> pages;
  for (uint32_t i = 0; i < 4; ++i) {
    pages.push_back(RandomPage(i));
    EXPECT_EQ(flash.TakeSlot(), static_cast<int32_t>(i)) << "the lowest that is free";
    flash.Write(static_cast<int32_t>(i), 0, pages.back());
  }
  EXPECT_THROW(flash.TakeSlot(), Error);
  EXPECT_EQ(flash.used_bytes(), 4 * kOddLayout.page_bytes());
  std::mt19937 random(7);
  for (int step = 0; step < 200; ++step) {
    const auto pick = [&](size_t most) {
      return std::uniform_int_distribution<size_t>(0, most)(random);
    };
    const size_t slot = pick(3), begin = pick(kOddLayout.page_bytes() - 1);
    const size_t count = 1 + pick(kOddLayout.page_bytes() - begin - 1);
    const std::vector<std::byte> bytes = RandomPage(static_cast<uint32_t>(step));
    std::memcpy(pages[slot].data() + begin, bytes.data(), count);
    flash.Write(static_cast<int32_t>(slot), begin, std::span(bytes).first(count));
    const size_t other = pick(3), at = pick(kOddLayout.page_bytes() - 1);
    std::vector<std::byte> out(1 + pick(kOddLayout.page_bytes() - at - 1));
    flash.Read(static_cast<int32_t>(other), at, out);
    ASSERT_EQ(std::memcmp(out.data(), pages[other].data() + at, out.size()), 0);
  }
  flash.DropSlot(2);
  flash.DropSlot(0);
  EXPECT_EQ(flash.used_slots(), 2);
  EXPECT_EQ(flash.TakeSlot(), 0);
}

class KvRingTest : public ::testing::Test {
 protected:
  void Open(FaultScript faults) {
    UnnamedFile file = File(kOddLayout, kSlots);
    file.file = std::make_unique<FaultyFile>(std::move(file.file), std::move(faults));
    flash_ = std::make_unique<KvFlash>(budget_, kOddLayout, kSlots, std::move(file));
    for (int32_t i = 0; i < kSlots; ++i) {
      pages_.push_back(RandomPage(static_cast<uint32_t>(i)));
      flash_->Write(flash_->TakeSlot(), 0, pages_.back());
    }
  }

  // A pass whose layers read `odd` or `even`.
  void RunPass(const std::vector<int32_t>& even, const std::vector<int32_t>& odd) {
    lists_.clear();
    for (int64_t l = 0; l < kOddLayout.num_layers; ++l)
      lists_.emplace_back(l % 2 == 0 ? even : odd);
    KvRing& ring = flash_->ring();
    ring.Begin(lists_);
    const size_t part = kOddLayout.page_bytes() / static_cast<size_t>(kOddLayout.num_layers);
    for (int64_t l = 0; l < kOddLayout.num_layers; ++l) {
      ring.Poll();
      ring.Wait(l);
      for (const int32_t slot : lists_[static_cast<size_t>(l)]) {
        ASSERT_EQ(std::memcmp(
                      ring.PartOf(l, slot),
                      pages_[static_cast<size_t>(slot)].data() + kOddLayout.KeysOffset(l, 0), part),
                  0)
            << "layer " << l << " slot " << slot;
      }
      ring.Done(l);
    }
  }

  static constexpr int32_t kSlots = 6;
  Budget budget_;
  std::unique_ptr<KvFlash> flash_;
  std::vector<std::vector<std::byte>> pages_;
  std::vector<std::span<const int32_t>> lists_;
};

TEST_F(KvRingTest, HasWhatEachLayerAsksForWhateverWasReadAhead) {
  Open({});
  std::mt19937 random(3);
  std::vector<int32_t> even = {0, 1, 2, 5}, odd;
  for (int pass = 0; pass < 100; ++pass) {
    if (random() % 3 == 0) {
      for (std::vector<int32_t>* list : {&even, &odd}) {
        list->clear();
        for (int32_t slot = 0; slot < kSlots; ++slot) {
          if (random() % 2 == 0) list->push_back(slot);
        }
      }
    }
    if (random() % 4 == 0) {  // a page leaves its slot, and another comes
      const auto slot = static_cast<int32_t>(random() % kSlots);
      flash_->DropSlot(slot);
      ASSERT_EQ(flash_->TakeSlot(), slot);
      pages_[static_cast<size_t>(slot)] = RandomPage(static_cast<uint32_t>(random()));
      flash_->Write(slot, 0, pages_[static_cast<size_t>(slot)]);
    }
    RunPass(even, odd);
  }
}

TEST_F(KvRingTest, ReadsAheadOfAPassThatReadsTheSameAgain) {
  Open({});
  const std::vector<int32_t> list = {0, 1, 2, 3};
  RunPass(list, list);
  RunPass(list, list);  // expects another
  const uint64_t before = flash_->ring().read_bytes();
  RunPass(list, list);
  const uint64_t of_pass = flash_->ring().read_bytes() - before;
  RunPass(list, list);
  EXPECT_EQ(flash_->ring().read_bytes() - before, 2 * of_pass) << "nothing is read twice";
}

TEST_F(KvRingTest, AReadThatFailsFailsItsLayerAndNothingElse) {
  Open({{.kind = FaultKind::kError, .nth_read = 2}});
  const std::vector<int32_t> list = {1, 3, 5};  // three reads a layer
  lists_.assign(static_cast<size_t>(kOddLayout.num_layers), list);
  KvRing& ring = flash_->ring();
  ring.Begin(lists_);
  EXPECT_THROW(ring.Wait(0), Error);
  EXPECT_EQ(ring.failed_slot(), 5);
  RunPass(list, list);
}

// Its queues have room for two reads, whatever is asked for.
class NarrowFile final : public FileDecorator {
 public:
  using FileDecorator::FileDecorator;
  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions&) override {
    return inner().OpenQueue({.depth = 2, .capacity = 2});
  }
};

TEST(KvRingFaultTest, AReadThatTheQueueRefusesFailsItsLayer) {
  Budget budget;
  UnnamedFile file = File(kOddLayout, 6);
  file.file = std::make_unique<NarrowFile>(std::move(file.file));
  KvFlash flash(budget, kOddLayout, 6, std::move(file));
  const std::vector<int32_t> list = {1, 3, 5};  // three reads
  const std::vector<std::span<const int32_t>> lists(5, list);
  flash.ring().Begin(lists);
  try {
    flash.ring().Wait(0);
    ADD_FAILURE() << "one read was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
  EXPECT_EQ(flash.ring().failed_slot(), 5);
}

TEST(KvRingOrderTest, ReadsForOneLayerAtATimeAndBetweenPassesForAll) {
  // 3 MiB of six slots a layer, in runs of two.
  const KvLayout layout{
      .codec = KvCodec::kF32, .num_layers = 4, .num_kv_heads = 8, .head_dim = 128};
  constexpr uint64_t kRuns = 3;
  Budget budget;
  UnnamedFile file = File(layout, 6);
  auto counting = std::make_unique<CountingFile>(std::move(file.file));
  const CountingFile& counts = *counting;
  file.file = std::move(counting);
  KvFlash flash(budget, layout, 6, std::move(file));
  const std::vector<int32_t> list = {0, 1, 2, 3, 4, 5};
  const std::vector<std::span<const int32_t>> lists(4, list);
  KvRing& ring = flash.ring();
  const auto run = [&](uint64_t before, bool is_ahead) {
    ring.Begin(lists);
    for (int64_t layer = 0; layer < 4; ++layer) {
      if (!is_ahead) {
        EXPECT_EQ(counts.counts().reads, before + static_cast<uint64_t>(layer + 1) * kRuns)
            << "layer " << layer + 1 << " waits";
      }
      ring.Wait(layer);
      ring.Done(layer);
    }
    return counts.counts().reads;
  };
  EXPECT_EQ(run(0, false), 4 * kRuns) << "no other pass was expected";
  EXPECT_EQ(run(4 * kRuns, false), 10 * kRuns) << "and the first two layers of the next pass";
  EXPECT_EQ(run(10 * kRuns, true), 14 * kRuns);
}

// Sequences in a pool with few frames.
class SpillingPoolTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPages = 12, kSlots = 9;  // and 4 frames
  std::unique_ptr<KvFlash> Flash() {
    UnnamedFile file = File(kOddLayout, kSlots);
    file.write = [this, write = file.write](uint64_t at, std::span<const std::byte> bytes) {
      return is_full_ ? ENOSPC : write(at, bytes);
    };
    return std::make_unique<KvFlash>(budget_, kOddLayout, kSlots, std::move(file));
  }
  // Fills pages [from, the last] of a sequence.
  void Fill(const KvSequence& sequence, size_t from, uint32_t seed) {
    for (size_t i = from; i < sequence.page_ids().size(); ++i) {
      pool_.CopyIn(sequence.page_ids()[i], 0, RandomPage(seed + static_cast<uint32_t>(i)));
    }
  }
  void ExpectFilled(const KvSequence& sequence, uint32_t seed) {
    std::vector<std::byte> page(kOddLayout.page_bytes());
    for (size_t i = 0; i < sequence.page_ids().size(); ++i) {
      pool_.CopyOut(sequence.page_ids()[i], 0, page);
      ASSERT_EQ(page, RandomPage(seed + static_cast<uint32_t>(i))) << "page " << i;
    }
  }

  bool is_full_ = false;
  Budget budget_;
  KvPool pool_{budget_, kOddLayout, 64 * kPages, Flash()};
};

TEST_F(SpillingPoolTest, TheOldestPagesLeaveMemory) {
  EXPECT_EQ(pool_.frames().count(), 4);
  KvSequence sequence(pool_);
  for (int i = 0; i < 10; ++i) {
    pool_.BeginPass();
    sequence.Append(64);
    Fill(sequence, static_cast<size_t>(i), 100);
  }
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(sequence.pages()[i] == nullptr, i < 6) << i;
  }
  ExpectFilled(sequence, 100);
  EXPECT_EQ(pool_.flash()->used_slots(), 6);
  // What is cut off makes room for what lies on flash, a few pages a pass.
  sequence.Truncate(64 * 7);
  const KvSequence* const used = &sequence;
  for (int pass = 0; pass < 3; ++pass) {
    pool_.BeginPass();
    pool_.Use({&used, 1});
  }
  EXPECT_EQ(pool_.flash()->used_slots(), 4) << "and a frame stays free";
  EXPECT_EQ(sequence.pages()[3], nullptr);
  EXPECT_NE(sequence.pages()[4], nullptr);
  ExpectFilled(sequence, 100);
}

TEST_F(SpillingPoolTest, PagesThatNobodyUsesLeaveBeforeThoseOfTheLivingAndComeBack) {
  KvSequence dead(pool_), alive(pool_);
  dead.Append(64 * 3);
  Fill(dead, 0, 200);
  for (int i = 0; i < 4; ++i) {
    pool_.BeginPass();
    alive.Append(64);
    Fill(alive, static_cast<size_t>(i), 300);
    const KvSequence* const used = &alive;
    pool_.Use({&used, 1});
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(alive.pages()[i], nullptr);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(dead.pages()[i], nullptr);
  // It lives again, and the other one does not.
  for (uint64_t pass = 0; pass < KvUses::kColdPasses + 4; ++pass) {
    pool_.BeginPass();
    const KvSequence* const used = &dead;
    pool_.Use({&used, 1});
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(dead.pages()[i], nullptr);
  ExpectFilled(dead, 200);
  ExpectFilled(alive, 300);
}

TEST_F(SpillingPoolTest, ASequenceThatCannotSpillStaysAsItWas) {
  KvSequence sequence(pool_);
  sequence.Append(64 * 4);
  Fill(sequence, 0, 1);
  is_full_ = true;
  pool_.BeginPass();
  try {
    sequence.Append(1);
    ADD_FAILURE() << "the disk is full";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos);
  }
  EXPECT_EQ(pool_.TakeFailed(), &sequence);
  EXPECT_EQ(sequence.length(), 64 * 4);
  EXPECT_EQ(pool_.flash()->used_slots(), 0);
  ExpectFilled(sequence, 1);
  is_full_ = false;
  sequence.Append(1);
  // More than a pass may write into.
  pool_.BeginPass();
  EXPECT_THROW(sequence.Append(64 * 5), Error);
  EXPECT_EQ(sequence.length(), 64 * 4 + 1);
}

TEST_F(SpillingPoolTest, SavedSequencesLongerThanMemoryComeBack) {
  KvSequence sequence(pool_);
  sequence.AppendSaved(64 * 10 + 5);
  Fill(sequence, 0, 50);
  EXPECT_EQ(pool_.flash()->used_slots(), 7);
  EXPECT_NE(sequence.pages().back(), nullptr) << "the newest are in memory";
  ExpectFilled(sequence, 50);
  // A fork goes on from the middle of a page that lies on flash.
  KvSequence fork = sequence.Fork();
  fork.Truncate(64 * 2 + 9);
  pool_.BeginPass();
  fork.Append(3);
  EXPECT_NE(fork.page_ids()[2], sequence.page_ids()[2]);
  ExpectFilled(fork, 50);
  ExpectFilled(sequence, 50);
}

}  // namespace
}  // namespace hearth
