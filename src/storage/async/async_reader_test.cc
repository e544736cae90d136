// What every AsyncFile does, whatever its backend.
#include "storage/async/async_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "storage/async/counting_file.h"
#include "storage/async/faulty_file.h"
#include "storage/async/test_async_files.h"
#include "storage/async/throttled_file.h"
#include "storage/test_clock.h"

namespace hearth {
namespace {

constexpr size_t kReadFileBytes = (size_t{1} << 20) + 1234;  // ends inside a block

TEST(CoveringRange, IsTheSmallestAlignedRangeAround) {
  for (const uint32_t alignment : {1u, 512u, 4096u}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{511}, uint64_t{512}, uint64_t{1} << 40}) {
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{512}, uint64_t{7168}}) {
        const AlignedRange range = CoveringRange(offset, bytes, alignment);
        EXPECT_EQ(range.offset % alignment, 0u);
        EXPECT_EQ(range.bytes % alignment, 0u);
        EXPECT_EQ(range.offset + range.skip, offset);
        EXPECT_LT(range.skip, alignment);
        EXPECT_GE(range.bytes, range.skip + bytes);
        EXPECT_LT(range.bytes - range.skip - bytes, alignment);
      }
    }
  }
}

class AsyncReaderTest : public testing::TestWithParam<FileKind> {
 protected:
  void SetUp() override {
    try {
      file_ = GetParam().open(sample_.path());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      GTEST_SKIP() << error.what();
    }
  }

  // A read of at most `most` bytes, anywhere, aligned as the file asks.
  ReadRequest RandomRequest(RandomWords& random, size_t most) const {
    const uint32_t alignment = file_->alignment_bytes();
    const uint64_t end = CoveringRange(0, kReadFileBytes, alignment).bytes;
    ReadRequest request;
    request.offset = random.NextBelow(kReadFileBytes) / alignment * alignment;
    const uint64_t room = std::min<uint64_t>(end - request.offset, most) / alignment;
    request.bytes = static_cast<uint32_t>((1 + random.NextBelow(room)) * alignment);
    return request;
  }

  // Opens a queue, reads `count` random ranges through it and compares them with the file.
  void CheckRandomReads(const QueueOptions& options, size_t count, uint64_t seed) {
    constexpr size_t kMostBytes = 16384;
    Buffer memory = Memory(count * kMostBytes);
    const auto queue = file_->OpenQueue(options);
    RandomWords random(seed);
    std::vector<ReadRequest> requests(count);
    for (size_t i = 0; i < count; ++i) {
      requests[i] = RandomRequest(random, kMostBytes);
      requests[i].data = memory.data() + i * kMostBytes;
      requests[i].tag = i;
    }
    std::vector<int> seen(count, 0);
    std::vector<ReadCompletion> done(9);
    size_t submitted = 0;
    size_t completed = 0;
    while (completed < count) {
      const size_t some = std::min<size_t>(count - submitted, random.NextBelow(40));
      submitted += queue->Submit(std::span(requests).subspan(submitted, some));
      ASSERT_EQ(queue->in_flight(), submitted - completed);
      const auto room = std::span(done).first(random.NextBelow(done.size() + 1));
      const size_t got = random.NextBelow(2) == 0 ? queue->Poll(room) : queue->Wait(room);
      for (const ReadCompletion& completion : std::span(done).first(got)) {
        ASSERT_LT(completion.tag, submitted);
        ASSERT_EQ(completion.error, 0);
        ASSERT_EQ(seen[completion.tag]++, 0);
        ASSERT_TRUE(Matches(sample_.bytes(), requests[completion.tag]));
      }
      completed += got;
    }
    EXPECT_EQ(queue->in_flight(), 0u);
  }

  const SampleFile sample_{kReadFileBytes};
  std::unique_ptr<AsyncFile> file_;
};

TEST_P(AsyncReaderTest, SaysWhatItIs) {
  EXPECT_EQ(file_->name(), sample_.path());
  EXPECT_EQ(file_->size_bytes(), kReadFileBytes);
  const auto queue = file_->OpenQueue({.depth = 3, .capacity = 17});
  EXPECT_EQ(queue->depth(), 3);
  EXPECT_EQ(queue->capacity(), 17u);
  EXPECT_EQ(file_->OpenQueue({.depth = 3})->capacity(), 4096u);
  file_->CheckUnchanged();
}

TEST_P(AsyncReaderTest, RandomReadsAreWhatTheFileHolds) {
  CheckRandomReads({.depth = 7, .capacity = 50}, 400, 1);
  CheckRandomReads({.depth = 64}, 400, 2);
}

TEST_P(AsyncReaderTest, OneReadAtATimeWorks) {
  CheckRandomReads({.depth = 1, .capacity = 1}, 50, 3);
  CheckRandomReads({.depth = 1}, 200, 4);
}

TEST_P(AsyncReaderTest, TakesNoMoreThanItsCapacity) {
  const uint32_t block = file_->alignment_bytes();
  Buffer memory = Memory(block * size_t{25});
  const auto queue = file_->OpenQueue({.depth = 2, .capacity = 10});
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < 25; ++i) requests.push_back({0, memory.data() + i * block, block, 5});
  const auto rest = std::span(requests).subspan(10);
  EXPECT_EQ(queue->Submit(requests), 10u);
  EXPECT_EQ(queue->Submit(rest), 0u);
  EXPECT_EQ(queue->in_flight(), 10u);
  ReadCompletion one;
  EXPECT_EQ(queue->Wait({&one, 1}), 1u);
  EXPECT_EQ(one.tag, 5u);
  EXPECT_EQ(queue->Submit(rest), 1u);
  EXPECT_EQ(WaitForAll(*queue).size(), 10u);
}

TEST_P(AsyncReaderTest, EveryRequestEndsOnceAndOnlyGuessesAreWithdrawn) {
  RandomWords random(11);
  constexpr size_t kMostBytes = size_t{16} << 10;
  for (int round = 0; round < 20; ++round) {
    const auto queue = file_->OpenQueue({.depth = 4});
    std::vector<ReadRequest> requests(1 + random.NextBelow(60));
    Buffer memory = Memory(requests.size() * kMostBytes);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i] = RandomRequest(random, kMostBytes);
      requests[i].data = memory.data() + i * kMostBytes;
      requests[i].tag = i;
      requests[i].is_guess = random.NextBelow(2) == 0;
    }
    ASSERT_EQ(queue->Submit(requests), requests.size());
    const bool withdraws = round % 2 == 0;
    if (withdraws) queue->WithdrawGuesses();
    std::vector<int> ended(requests.size());
    std::vector<ReadCompletion> done(7);
    while (queue->in_flight() > 0) {
      const size_t count = queue->Wait(done);
      for (size_t i = 0; i < count; ++i) {
        const ReadRequest& request = requests[done[i].tag];
        ++ended[done[i].tag];
        if (done[i].error == ECANCELED) {
          EXPECT_TRUE(withdraws && request.is_guess);
        } else {
          ASSERT_EQ(done[i].error, 0);
          EXPECT_TRUE(Matches(sample_.bytes(), request));
        }
      }
    }
    EXPECT_EQ(ended, std::vector<int>(requests.size(), 1));
  }
}

TEST_P(AsyncReaderTest, WithdrawnGuessesComeBackBeforeAPollFindsNothing) {
  const uint32_t block = file_->alignment_bytes();
  Buffer memory = Memory(block * size_t{40});
  for (int round = 0; round < 50; ++round) {
    const auto queue = file_->OpenQueue({.depth = 2});
    std::vector<ReadRequest> guesses;
    for (size_t i = 0; i < 40; ++i) {
      guesses.push_back({0, memory.data() + i * block, block, i, true});
    }
    ASSERT_EQ(queue->Submit(guesses), 40u);
    queue->WithdrawGuesses();
    std::vector<ReadCompletion> done(7);
    size_t handed_back = 0;
    for (size_t count; (count = queue->Poll(done)) > 0;) handed_back += count;
    EXPECT_GE(handed_back, 38u);  // those that had begun may still be on their way
    while (queue->Wait(done) > 0) {
    }
  }
}

TEST_P(AsyncReaderTest, HasNothingToHandBackWhereNothingIsInFlight) {
  const auto queue = file_->OpenQueue({.depth = 4});
  std::vector<ReadCompletion> done(4);
  EXPECT_EQ(queue->Poll(done), 0u);
  EXPECT_EQ(queue->Wait(done), 0u);
  Buffer memory = Memory(file_->alignment_bytes());
  const ReadRequest request{0, memory.data(), file_->alignment_bytes(), 1};
  ASSERT_EQ(queue->Submit({&request, 1}), 1u);
  EXPECT_EQ(queue->Wait({}), 0u);
  EXPECT_EQ(queue->in_flight(), 1u);
}

TEST_P(AsyncReaderTest, RefusesRequestsThatMakeNoSenseAndGoesOn) {
  const uint32_t block = file_->alignment_bytes();
  const uint64_t end = CoveringRange(0, kReadFileBytes, block).bytes;
  Buffer memory = Memory(block * size_t{16});
  std::vector<ReadRequest> requests = {
      {0, memory.data(), block, 0},
      {0, memory.data(), 0, EINVAL},
      {0, nullptr, block, EINVAL},
      {end, memory.data(), block, ERANGE},
      {end - block, memory.data(), 2 * block, ERANGE},
      {uint64_t{0} - block, memory.data(), 2 * block, ERANGE},
      {end - block, memory.data() + block * size_t{8}, block, 0},
  };
  if (block > 1) {
    requests.push_back({block / 2, memory.data(), block, EINVAL});
    requests.push_back({0, memory.data(), block + block / 2, EINVAL});
  }
  if (file_->memory_alignment_bytes() > 1) {
    requests.push_back({0, memory.data() + 1, block, EINVAL});
  }
  const auto queue = file_->OpenQueue({.depth = 4});
  ASSERT_EQ(queue->Submit(requests), requests.size());
  const std::vector<ReadCompletion> done = WaitForAll(*queue);
  EXPECT_EQ(done.size(), requests.size());
  for (const ReadCompletion& completion : done) {
    EXPECT_EQ(completion.error, static_cast<int>(completion.tag));
  }
  EXPECT_TRUE(Matches(sample_.bytes(), requests[0]));
  EXPECT_TRUE(Matches(sample_.bytes(), requests[6]));  // the last block, past the end of the file
}

TEST_P(AsyncReaderTest, WritesNothingAfterItsQueueIsGone) {
  constexpr size_t kReads = 32;
  constexpr size_t kReadBytes = 32768;
  Buffer memory = Memory(kReads * kReadBytes);
  std::vector<ReadRequest> requests(kReads);
  for (size_t i = 0; i < kReads; ++i) {
    requests[i] = {i * kReadBytes, memory.data() + i * kReadBytes, kReadBytes, i};
  }
  for (const int depth : {1, 16, 64}) {
    const auto queue = file_->OpenQueue({.depth = depth});
    ASSERT_EQ(queue->Submit(requests), kReads);
    std::vector<ReadCompletion> done(3);
    static_cast<void>(queue->Poll(done));
  }
  std::memset(memory.data(), 0x5a, memory.size_bytes());
  CheckRandomReads({.depth = 16}, 200, 5);  // time for a late write, and the file still works
  for (const std::byte b : memory.As<const std::byte>(memory.size_bytes())) {
    ASSERT_EQ(b, std::byte{0x5a});
  }
}

TEST_P(AsyncReaderTest, ServesAQueueForEachOfSeveralThreads) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] { CheckRandomReads({.depth = 8}, 150, 10 + t); });
  }
  for (std::thread& thread : threads) thread.join();
}

// The thread that submitted has ended before the reads are collected.
TEST_P(AsyncReaderTest, AQueueCanBeHandedToAnotherThread) {
  const uint32_t bytes = std::max(file_->alignment_bytes(), 8192u);
  Buffer memory = Memory(bytes * size_t{100});
  std::vector<ReadRequest> requests(100);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i] = {i * bytes, memory.data() + i * bytes, bytes, i};
  }
  const auto queue = file_->OpenQueue({.depth = 16});
  size_t taken = 0;
  std::thread([&] { taken = queue->Submit(requests); }).join();
  ASSERT_EQ(taken, requests.size());
  for (const ReadCompletion& completion : WaitForAll(*queue)) {
    EXPECT_EQ(completion.error, 0);
    EXPECT_TRUE(Matches(sample_.bytes(), requests[completion.tag]));
  }
}

TEST_P(AsyncReaderTest, ReadsTheSameWithRegisteredBuffersAndBesideThem) {
  const uint32_t bytes = std::max(file_->alignment_bytes(), 4096u);
  Buffer first = Memory(bytes * size_t{8});
  Buffer second = Memory(bytes * size_t{8});
  Buffer outside = Memory(bytes * size_t{8});
  const auto queue = file_->OpenQueue({.depth = 4});
  const std::vector<std::span<std::byte>> regions = {first.As<std::byte>(first.size_bytes()),
                                                     second.As<std::byte>(second.size_bytes())};
  EXPECT_FALSE(queue->registered());
  const bool registered = queue->RegisterBuffers(regions);
  EXPECT_EQ(registered, queue->registered());
  std::vector<ReadRequest> requests;
  for (Buffer* buffer : {&first, &second, &outside}) {
    for (size_t i = 0; i < 8; ++i) {
      const size_t tag = requests.size();
      requests.push_back({tag * 3 * bytes, buffer->data() + i * bytes, bytes, tag});
    }
  }
  ASSERT_EQ(queue->Submit(requests), requests.size());
  for (const ReadCompletion& completion : WaitForAll(*queue)) {
    EXPECT_EQ(completion.error, 0);
    EXPECT_TRUE(Matches(sample_.bytes(), requests[completion.tag]));
  }
}

// Some with nothing between them, some with little, some with more than may be thrown away.
TEST_P(AsyncReaderTest, NeighboursThatAreReadTogetherGoWhereEachBelongs) {
  const uint32_t block = std::max(file_->alignment_bytes(), 512u);
  RandomWords random(6);
  std::vector<ReadRequest> requests;
  uint64_t between = 0;
  for (uint64_t at = 0;;) {
    const auto bytes = static_cast<uint32_t>((1 + random.NextBelow(4)) * block);
    if (at + bytes > kReadFileBytes) break;
    requests.push_back({at, nullptr, bytes, requests.size()});
    const uint64_t gap = random.NextBelow(6) * block;
    between += gap;
    at += bytes + gap;
  }
  for (const std::optional<uint32_t> most_gap :
       {std::optional<uint32_t>(), std::optional<uint32_t>(0), std::optional(2 * block)}) {
    Buffer memory = Memory(requests.size() * 4 * block);
    for (size_t i = 0; i < requests.size(); ++i) requests[i].data = memory.data() + i * 4 * block;
    const auto queue = file_->OpenQueue({.depth = 4, .merge_gap_bytes = most_gap});
    ASSERT_EQ(queue->Submit(requests), requests.size());
    std::vector<int> seen(requests.size(), 0);
    for (const ReadCompletion& completion : WaitForAll(*queue)) {
      EXPECT_EQ(completion.error, 0);
      EXPECT_EQ(seen[completion.tag]++, 0);
      EXPECT_TRUE(Matches(sample_.bytes(), requests[completion.tag]));
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(requests));
    EXPECT_LT(queue->gap_bytes(), between);
    if (most_gap.value_or(0) == 0) {
      EXPECT_EQ(queue->gap_bytes(), 0u);
    }
  }
}

TEST_P(AsyncReaderTest, RefusesQueuesThatMakeNoSense) {
  for (const QueueOptions& options :
       std::vector<QueueOptions>{{.depth = 0},
                                 {.depth = -1},
                                 {.depth = kMaxQueueDepth + 1},
                                 {.depth = 8, .capacity = 7},
                                 {.depth = 8, .merge_gap_bytes = kMaxGapBytes + 1},
                                 {.depth = 8, .capacity = SIZE_MAX}}) {
    try {
      static_cast<void>(file_->OpenQueue(options));
      ADD_FAILURE() << options.depth << " " << options.capacity;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

TEST_P(AsyncReaderTest, AnEmptyFileHasNothingToRead) {
  const SampleFile empty(0, "empty");
  const auto file = GetParam().open(empty.path());
  Buffer memory = Memory(4096);
  const auto queue = file->OpenQueue({.depth = 1});
  const ReadRequest request{0, memory.data(), 4096, 1};
  ASSERT_EQ(queue->Submit({&request, 1}), 1u);
  const std::vector<ReadCompletion> done = WaitForAll(*queue);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].error, ERANGE);
}

// Decorators over each other and over a file in memory, in the time of a clock that nobody waits
// for.
std::unique_ptr<AsyncFile> DecoratedFile(const std::string& path) {
  static const FakeClock clock;
  const FaultScript delays = RandomFaultScript(3, 2000, {.delay = 0.3, .max_delay_ns = 1000000});
  auto throttled = MakeThrottledFile(ShuffledMemoryFile(path),
                                     {.profile = Ufs40(), .cores = {0, 1, 1, 2}, .clock = &clock});
  auto faulty = std::make_unique<FaultyFile>(std::move(throttled), delays, &clock);
  return std::make_unique<CountingFile>(std::move(faulty), &clock);
}

std::vector<FileKind> AllKinds() {
  std::vector<FileKind> kinds = DiskKinds();
  kinds.push_back({"Memory", [](const std::string& path) {
                     static Budget budget;
                     return LoadMemoryFile(path, budget);
                   }});
  kinds.push_back({"MemoryShuffled", ShuffledMemoryFile});
  kinds.push_back({"Decorated", DecoratedFile});
  kinds.push_back({"DecoratedDisk", [](const std::string& path) {
                     return std::make_unique<CountingFile>(
                         std::make_unique<FaultyFile>(OpenAsyncFile(path), FaultScript{}));
                   }});
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Backends, AsyncReaderTest, testing::ValuesIn(AllKinds()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace hearth
