#include "engine/session/session_keeper.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

namespace hearth {
namespace {

const KvLayout kTransferLayout{
    .codec = KvCodec::kF16, .num_layers = 1, .num_kv_heads = 1, .head_dim = 32};

class PageTransferTest : public ::testing::Test {
 protected:
  KvSequence Sequence(int64_t tokens) {
    KvSequence kv(pool_);
    kv.Append(tokens);
    return kv;
  }

  Budget budget_;
  KvPool pool_{budget_, kTransferLayout, 64 * 4};
  std::array<std::byte, 100> bytes_{};
};

TEST_F(PageTransferTest, CopiesBothWaysUntilItIsTaken) {
  PageTransfer transfer(Sequence(100));
  bytes_.fill(std::byte{7});
  EXPECT_TRUE(transfer.CopyIn(1, 50, bytes_));
  bytes_.fill(std::byte{0});
  EXPECT_TRUE(transfer.CopyOut(1, 50, bytes_));
  EXPECT_EQ(bytes_.back(), std::byte{7});
  EXPECT_FALSE(transfer.is_done());
  transfer.Finish(70);
  EXPECT_TRUE(transfer.is_done());
  const KvSequence kv = transfer.Take();
  EXPECT_EQ(kv.length(), 70) << "what arrived";
  EXPECT_EQ(kv.pages()[1][50], std::byte{7});
  EXPECT_FALSE(transfer.CopyIn(1, 50, bytes_)) << "they are the engine's again";
}

TEST_F(PageTransferTest, ATransferThatFailedHasNoTokens) {
  PageTransfer transfer(Sequence(100));
  transfer.Finish(0);
  EXPECT_EQ(transfer.Take().length(), 0);
  EXPECT_EQ(pool_.free_pages(), 4);
}

TEST_F(PageTransferTest, AbandonedPagesAreFreeAtOnceAndNeverTouchedAgain) {
  PageTransfer transfer(Sequence(256));
  std::atomic<bool> ended{false};
  std::thread other([&] {
    std::array<std::byte, 4096> piece;
    piece.fill(std::byte{9});
    while (transfer.CopyIn(0, 0, piece)) {
    }
    ended = true;
  });
  transfer.Abandon();
  EXPECT_EQ(pool_.free_pages(), 4);
  const KvSequence next = Sequence(256);
  for (std::byte* page : next.pages()) std::memset(page, 1, kTransferLayout.page_bytes());
  other.join();
  EXPECT_TRUE(ended);
  for (const std::byte* page : next.pages()) EXPECT_EQ(page[0], std::byte{1});
}

TEST(JobThreadTest, DoesJobsInOrderAndDropsTheRest) {
  std::vector<int> done;
  {
    JobThread thread;
    std::promise<void> last;
    for (int i = 0; i < 5; ++i) thread.Post([&done, i] { done.push_back(i); });
    thread.Post([&last] { last.set_value(); });
    last.get_future().wait();
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4}));
  // Jobs after one that is still under way when the thread is to end: some may be done, in order
  // and before the destructor returns; the others are gone, and what they held with them.
  const auto held = std::make_shared<int>();
  for (int round = 0; round < 20; ++round) {
    done.clear();
    auto thread = std::make_unique<JobThread>();
    std::promise<void> goes_on;
    thread->Post([&goes_on] { goes_on.get_future().wait(); });
    for (int i = 0; i < 5; ++i) thread->Post([&done, i, held] { done.push_back(i); });
    std::thread ending([&thread] { thread.reset(); });
    goes_on.set_value();
    ending.join();
    for (size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], static_cast<int>(i));
    EXPECT_EQ(held.use_count(), 1);
  }
}

}  // namespace
}  // namespace hearth
