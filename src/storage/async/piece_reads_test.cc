#include "storage/async/piece_reads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "storage/async/test_async_files.h"

namespace hearth {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kFileBytes = 10000;

class PieceReadsTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncFile> Open(uint64_t seed) {
    Buffer copy = Memory(kFileBytes);
    std::copy(bytes_.begin(), bytes_.end(), copy.data());
    return MakeMemoryFile("sample", std::move(copy),
                          {.alignment_bytes = kAlignment,
                           .memory_alignment_bytes = kAlignment,
                           .completion_seed = seed});
  }

  const std::vector<std::byte> bytes_ = RandomBytes(kFileBytes, 1);
};

// Two at a time, in whatever order their pieces come.
TEST_F(PieceReadsTest, BringWhatWasAskedFor) {
  std::mt19937_64 random(3);
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const auto file = Open(trial);
    const auto queue = file->OpenQueue({});
    std::array<PieceReads, 2> reads;
    std::array<uint64_t, 2> begins{}, counts{};
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < reads.size(); ++i) {
      begins[i] = random() % kFileBytes;
      counts[i] = 1 + random() % (kFileBytes - begins[i]);
      buffers.push_back(Memory(kFileBytes + 2 * kAlignment));
      const uint64_t piece = kAlignment * (1 + random() % 20);
      const uint64_t read = SubmitPieces(*queue, *file, {begins[i], counts[i], piece}, i,
                                         buffers[i].data(), reads[i]);
      EXPECT_EQ(read % kAlignment, 0u);
      EXPECT_GE(read, counts[i]);
      EXPECT_EQ(reads[i].pending, static_cast<int>((read + piece - 1) / piece));
    }
    while (reads[0].pending + reads[1].pending > 0) {
      CollectPieces(*queue, true, [&](uint64_t tag) -> PieceReads& { return reads[tag]; });
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      EXPECT_EQ(reads[i].error, 0);
      EXPECT_EQ(reads[i].skip, begins[i] % kAlignment);
      const std::byte* found = buffers[i].data() + reads[i].skip;
      EXPECT_TRUE(
          std::equal(found, found + counts[i], bytes_.begin() + static_cast<int64_t>(begins[i])));
    }
  }
}

TEST_F(PieceReadsTest, SayThatTheQueueIsFullOrTheFileEnds) {
  const auto file = Open(0);
  const auto queue = file->OpenQueue({.depth = 2, .capacity = 2});
  const auto collect = [&](PieceReads& reads) {
    while (reads.pending > 0) {
      CollectPieces(*queue, true, [&](uint64_t) -> PieceReads& { return reads; });
    }
  };
  Buffer buffer = Memory(kFileBytes);
  PieceReads reads;
  EXPECT_EQ(SubmitPieces(*queue, *file, {0, 4 * kAlignment, kAlignment}, 0, buffer.data(), reads),
            2 * kAlignment);
  EXPECT_EQ(reads.error, EAGAIN);
  collect(reads);
  EXPECT_EQ(reads.error, EAGAIN) << "pieces that came do not make it whole";

  SubmitPieces(*queue, *file, {2 * kFileBytes, 1, kAlignment}, 0, buffer.data(), reads);
  EXPECT_EQ(reads.error, 0);
  collect(reads);
  EXPECT_EQ(reads.error, ERANGE);
}

}  // namespace
}  // namespace hearth
