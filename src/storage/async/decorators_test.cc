// Files that are slow, that fail, that count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "storage/async/counting_file.h"
#include "storage/async/emulated_file.h"
#include "storage/async/faulty_file.h"
#include "storage/async/test_async_files.h"
#include "storage/async/throttled_file.h"
#include "storage/test_clock.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr size_t kSampleBytes = 100000;

const std::vector<std::byte>& Contents() {
  static const std::vector<std::byte> bytes = RandomBytes(kSampleBytes, 1);
  return bytes;
}

std::unique_ptr<AsyncFile> SampleInMemory() {
  Buffer bytes = Memory(kSampleBytes);
  std::copy(Contents().begin(), Contents().end(), bytes.data());
  return MakeMemoryFile("sample", std::move(bytes));
}

// `count` reads of `bytes` each, one after the other in the file and in memory.
std::vector<ReadRequest> Row(Buffer& memory, size_t count, uint32_t bytes) {
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < count; ++i) {
    requests.push_back({i * bytes, memory.data() + i * bytes, bytes, i});
  }
  return requests;
}

class ThrottledFileTest : public testing::Test {
 protected:
  // 1 ns per byte, and nothing else.
  std::unique_ptr<AsyncFile> Open() {
    DeviceProfile profile;
    profile.random = {{1, 1e9}};
    return MakeThrottledFile(SampleInMemory(), {.profile = profile, .clock = &clock_});
  }

  FakeClock clock_;
  const int64_t start_ns_ = clock_.NowNs();
  Buffer memory_ = Memory(kSampleBytes);
  std::vector<ReadCompletion> done_ = std::vector<ReadCompletion>(16);
};

TEST_F(ThrottledFileTest, HandsNothingBackBeforeItsTime) {
  const auto file = Open();
  const auto queue = file->OpenQueue({.depth = 8});
  ASSERT_EQ(queue->Submit(Row(memory_, 3, 1000)), 3u);
  EXPECT_EQ(queue->Poll(done_), 0u);
  clock_.Advance(999);
  EXPECT_EQ(queue->Poll(done_), 0u);
  EXPECT_EQ(queue->in_flight(), 3u);
  clock_.Advance(1);
  EXPECT_EQ(queue->Poll(done_), 1u);
  EXPECT_EQ(done_[0].tag, 0u);
  clock_.Advance(5000);
  EXPECT_EQ(queue->Poll(done_), 2u);
  EXPECT_EQ(done_[1].tag, 2u);
}

TEST_F(ThrottledFileTest, WaitsExactlyUntilTheFirstIsDue) {
  const auto file = Open();
  const auto queue = file->OpenQueue({.depth = 8});
  ASSERT_EQ(queue->Submit(Row(memory_, 3, 1000)), 3u);
  EXPECT_EQ(queue->Wait(done_), 1u);
  EXPECT_EQ(clock_.NowNs() - start_ns_, 1000);
  EXPECT_EQ(WaitForAll(*queue).size(), 2u);
  EXPECT_EQ(clock_.NowNs() - start_ns_, 3000);
}

TEST_F(ThrottledFileTest, QueuesShareTheDevice) {
  const auto file = Open();
  const auto first = file->OpenQueue({.depth = 8});
  const auto second = file->OpenQueue({.depth = 8});
  ASSERT_EQ(first->Submit(Row(memory_, 4, 1000)), 4u);
  ASSERT_EQ(second->Submit(Row(memory_, 1, 1000)), 1u);
  EXPECT_EQ(second->Wait(done_), 1u);
  EXPECT_EQ(clock_.NowNs() - start_ns_, 5000);
  EXPECT_EQ(first->Poll(done_), 4u);
}

TEST_F(ThrottledFileTest, ReadsBeyondItsDepthAreIssuedWhenItIsPolled) {
  const auto file = Open();
  const auto queue = file->OpenQueue({.depth = 1});
  ASSERT_EQ(queue->Submit(Row(memory_, 2, 1000)), 2u);
  clock_.Advance(10000);
  EXPECT_EQ(queue->Poll(done_), 1u);
  EXPECT_EQ(queue->Wait(done_), 1u);
  EXPECT_EQ(clock_.NowNs() - start_ns_, 11000);
}

// 200 guesses are on their way, 8 of them in the device: what somebody waits for is next.
TEST_F(ThrottledFileTest, AWantedReadOvertakesAFullQueueOfGuesses) {
  const auto file = Open();
  const auto queue = file->OpenQueue({.depth = 8});
  std::vector<ReadRequest> guesses = Row(memory_, 200, 100);
  for (ReadRequest& guess : guesses) guess.is_guess = true;
  ASSERT_EQ(queue->Submit(guesses), 200u);
  const ReadRequest wanted = {20000, memory_.data() + 20000, 100, 999};
  ASSERT_EQ(queue->Submit({&wanted, 1}), 1u);
  const auto finished = [&] {
    return std::any_of(done_.begin(), done_.end(), [](const auto& c) { return c.tag == 999; });
  };
  while (!finished()) ASSERT_GT(queue->Wait(done_), 0u);
  EXPECT_EQ(clock_.NowNs() - start_ns_, 9 * 100);
  EXPECT_EQ(memory_.data()[20000], Contents()[20000]);
}

TEST_F(ThrottledFileTest, GuessesThatHaveNotBegunAreWithdrawn) {
  const auto file = Open();
  const auto queue = file->OpenQueue({.depth = 8});
  std::vector<ReadRequest> requests = Row(memory_, 30, 100);
  for (size_t i = 0; i < 20; ++i) requests[i].is_guess = true;
  ASSERT_EQ(queue->Submit(std::span(requests).first(20)), 20u);
  ASSERT_EQ(queue->Submit(std::span(requests).subspan(20)), 10u);
  queue->WithdrawGuesses();
  std::vector<int> errors(30, -1);
  while (queue->in_flight() > 0) {
    const size_t count = queue->Wait(done_);
    for (size_t i = 0; i < count; ++i) errors[done_[i].tag] = done_[i].error;
  }
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(errors[i], i >= 8 && i < 20 ? ECANCELED : 0) << i;
  }
  EXPECT_EQ(clock_.NowNs() - start_ns_, 18 * 100);
}

// Neither a delay below nor one above keeps back what is done.
TEST_F(ThrottledFileTest, AStalledReadDoesNotHoldUpOthers) {
  DeviceProfile profile;
  profile.random = {{1, 1e9}};
  const Fault stall = {.kind = FaultKind::kDelay, .nth_read = 0, .delay_ns = 5'000'000'000};
  const ThrottleOptions throttle = {.profile = profile, .clock = &clock_};
  std::vector<std::unique_ptr<AsyncFile>> files;
  files.push_back(MakeThrottledFile(
      std::make_unique<FaultyFile>(SampleInMemory(), FaultScript{stall}, &clock_), throttle));
  files.push_back(std::make_unique<FaultyFile>(MakeThrottledFile(SampleInMemory(), throttle),
                                               FaultScript{stall}, &clock_));
  for (const auto& file : files) {
    const auto queue = file->OpenQueue({.depth = 8});
    const int64_t before_ns = clock_.NowNs();
    ASSERT_EQ(queue->Submit(Row(memory_, 3, 1000)), 3u);
    size_t got = 0;
    while (got < 2) got += queue->Wait(done_);
    EXPECT_EQ(got, 2u);
    EXPECT_LT(clock_.NowNs() - before_ns, 1'000'000);
    EXPECT_EQ(queue->Wait(done_), 1u);
    EXPECT_EQ(done_[0].tag, 0u);
    EXPECT_GE(clock_.NowNs() - before_ns, 5'000'000'000);
  }
}

TEST_F(ThrottledFileTest, TheIssuingCoreIsThatOfTheQueue) {
  DeviceProfile profile;
  profile.random = {{1, 1e9}};
  profile.core_seconds = {0, 1e-6};
  const auto file =
      MakeThrottledFile(SampleInMemory(), {.profile = profile, .cores = {0, 1}, .clock = &clock_});
  for (const int64_t expected_ns : {1000, 2000, 2000}) {
    const int64_t before_ns = clock_.NowNs();
    const auto queue = file->OpenQueue({.depth = 1});
    ASSERT_EQ(queue->Submit(Row(memory_, 1, 1000)), 1u);
    EXPECT_EQ(queue->Wait(done_), 1u);
    EXPECT_EQ(clock_.NowNs() - before_ns, expected_ns);
  }
}

TEST(ThrottledFile, RefusesAProfileThatContradictsItself) {
  EXPECT_THROW(MakeThrottledFile(SampleInMemory(), {}), Error);
}

TEST(SteadyClock, NeverWakesEarly) {
  const Clock& clock = SteadyClock();
  for (const int64_t ns : {int64_t{-5}, int64_t{0}, int64_t{3000}, int64_t{400000}}) {
    const int64_t until = clock.NowNs() + ns;
    clock.SleepUntilNs(until);
    EXPECT_GE(clock.NowNs(), until);
  }
}

class FaultyFileTest : public testing::Test {
 protected:
  // Reads 100 bytes each in order under a script, a queue of depth 4; errors by tag.
  std::vector<int> Read(const FaultScript& script, size_t count) {
    FaultyFile file(SampleInMemory(), script, &clock_);
    const auto queue = file.OpenQueue({.depth = 4});
    requests_ = Row(memory_, count, 100);
    EXPECT_EQ(queue->Submit(requests_), count);
    std::vector<int> errors(count, -1);
    for (const ReadCompletion& completion : WaitForAll(*queue)) {
      errors[completion.tag] = completion.error;
    }
    counts_ = file.counts();
    return errors;
  }
  size_t WrongBytes(size_t tag) const {
    size_t wrong = 0;
    for (size_t i = tag * 100; i < tag * 100 + 100; ++i) {
      wrong += memory_.data()[i] != Contents()[i] ? 1 : 0;
    }
    return wrong;
  }

  FakeClock clock_;
  Buffer memory_ = Memory(kSampleBytes);
  std::vector<ReadRequest> requests_;
  FaultCounts counts_;
};

TEST_F(FaultyFileTest, FailsTheReadsItIsToldTo) {
  const auto errors =
      Read({{.kind = FaultKind::kError, .nth_read = 7, .error = ENXIO},
            {.kind = FaultKind::kError, .nth_read = 2, .reads = 3, .error = ETIMEDOUT}},
           10);
  EXPECT_EQ(errors, (std::vector<int>{0, 0, ETIMEDOUT, ETIMEDOUT, ETIMEDOUT, 0, 0, ENXIO, 0, 0}));
  EXPECT_EQ(WrongBytes(6), 0u);
  EXPECT_GT(WrongBytes(7), 90u);
  EXPECT_EQ(counts_.reads, 10u);
  EXPECT_EQ(counts_.faults, 4u);
}

TEST_F(FaultyFileTest, EndsReadsShort) {
  EXPECT_EQ(Read({{.kind = FaultKind::kShortRead, .nth_read = 1, .byte = 40}}, 3),
            (std::vector<int>{0, EIO, 0}));
  EXPECT_TRUE(std::equal(memory_.data(), memory_.data() + 140, Contents().begin()));
  EXPECT_EQ(memory_.data()[140], std::byte{0xa5});
  EXPECT_EQ(memory_.data()[199], std::byte{0xa5});
}

TEST_F(FaultyFileTest, FlipsBitsAndSaysNothing) {
  EXPECT_EQ(Read({{.kind = FaultKind::kFlip, .nth_read = 0, .byte = 105, .mask = 0x40}}, 2),
            (std::vector<int>{0, 0}));
  EXPECT_EQ(WrongBytes(0), 1u);
  EXPECT_EQ(memory_.data()[5] ^ Contents()[5], std::byte{0x40});
}

TEST_F(FaultyFileTest, DelaysWithoutHarm) {
  FaultyFile file(SampleInMemory(),
                  {{.kind = FaultKind::kDelay, .nth_read = 0, .delay_ns = 5'000'000'000}}, &clock_);
  const auto queue = file.OpenQueue({.depth = 4});
  const int64_t start_ns = clock_.NowNs();
  requests_ = Row(memory_, 2, 100);
  ASSERT_EQ(queue->Submit(requests_), 2u);
  std::vector<ReadCompletion> done(4);
  EXPECT_EQ(queue->Wait(done), 1u);
  EXPECT_EQ(done[0].tag, 1u);
  EXPECT_EQ(clock_.NowNs(), start_ns);
  EXPECT_EQ(queue->Poll(done), 0u);
  EXPECT_EQ(queue->Wait(done), 1u);
  EXPECT_EQ(done[0].error, 0);
  EXPECT_EQ(clock_.NowNs() - start_ns, 5'000'000'000);
  EXPECT_EQ(WrongBytes(0), 0u);
}

TEST_F(FaultyFileTest, SeveralFaultsMayMeet) {
  const auto errors = Read({{.kind = FaultKind::kFlip, .nth_read = 0, .reads = 100, .mask = 1},
                            {.kind = FaultKind::kError, .nth_read = 3, .error = EIO},
                            {.kind = FaultKind::kFlip, .nth_read = 4, .byte = 1, .mask = 1}},
                           6);
  EXPECT_EQ(errors, (std::vector<int>{0, 0, 0, EIO, 0, 0}));
  EXPECT_EQ(WrongBytes(2), 1u);
  EXPECT_EQ(WrongBytes(4), 2u);
  EXPECT_EQ(counts_.faults, 6u);
}

TEST_F(FaultyFileTest, LeavesRequestsThatMakeNoSenseAlone) {
  FaultyFile file(SampleInMemory(),
                  {{.kind = FaultKind::kFlip, .reads = 10}, {.kind = FaultKind::kError}}, &clock_);
  const auto queue = file.OpenQueue({.depth = 4});
  const std::vector<ReadRequest> requests = {{0, nullptr, 100, 0},
                                             {kSampleBytes, memory_.data(), 100, 1}};
  ASSERT_EQ(queue->Submit(requests), 2u);
  for (const ReadCompletion& completion : WaitForAll(*queue)) {
    EXPECT_EQ(completion.error, completion.tag == 0 ? EINVAL : ERANGE);
  }
}

TEST_F(FaultyFileTest, RefusesScriptsThatMakeNoSense) {
  for (const Fault& fault : std::vector<Fault>{{.kind = FaultKind::kError, .error = 0},
                                               {.kind = FaultKind::kFlip, .mask = 0},
                                               {.kind = FaultKind::kDelay, .delay_ns = -1}}) {
    try {
      FaultyFile(SampleInMemory(), {fault}, &clock_);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("the fault of read 0"));
    }
  }
}

TEST_F(FaultyFileTest, RandomScriptsFollowTheirSeedAndRates) {
  const FaultRates rates = {
      .error = 0.05, .short_read = 0.1, .delay = 0.2, .flip = 0.3, .max_delay_ns = 1000};
  const FaultScript script = RandomFaultScript(1, 10000, rates);
  const FaultScript same = RandomFaultScript(1, 10000, rates);
  const FaultScript other = RandomFaultScript(2, 10000, rates);
  const auto nths = [](const FaultScript& s) {
    std::vector<uint64_t> out;
    for (const Fault& fault : s) out.push_back(fault.nth_read);
    return out;
  };
  EXPECT_EQ(nths(script), nths(same));
  EXPECT_NE(nths(script), nths(other));
  const auto share = [&script](FaultKind kind) {
    const auto count = std::count_if(script.begin(), script.end(),
                                     [kind](const Fault& fault) { return fault.kind == kind; });
    return static_cast<double>(count) / 10000;
  };
  EXPECT_NEAR(share(FaultKind::kError), 0.05, 0.01);
  EXPECT_NEAR(share(FaultKind::kShortRead), 0.1, 0.015);
  EXPECT_NEAR(share(FaultKind::kDelay), 0.2, 0.02);
  EXPECT_NEAR(share(FaultKind::kFlip), 0.3, 0.02);
  for (const Fault& fault : script) EXPECT_LE(fault.delay_ns, 1000);
}

// Under any script, a read either fails or is flipped or holds what the file holds.
TEST_F(FaultyFileTest, NoRandomScriptMakesAReadWrongUnsaid) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const FaultRates rates = {.error = 0.1, .short_read = 0.1, .delay = 0.2, .max_delay_ns = 9000};
    const auto errors = Read(RandomFaultScript(seed, 200, rates), 200);
    for (size_t tag = 0; tag < errors.size(); ++tag) {
      ASSERT_NE(errors[tag], -1);
      if (errors[tag] == 0) {
        ASSERT_EQ(WrongBytes(tag), 0u);
      }
    }
  }
}

class EmulatedFileTest : public testing::Test {
 protected:
  EmulatedFileTest() {
    device_.flash.name = "fast";
    device_.flash.random = {{1, 1e12}};
  }

  const SampleFile sample_{kSampleBytes, "emulated_file_test"};
  EmulatedDevice device_;
};

TEST_F(EmulatedFileTest, ServesTheFileAsDirectReads) {
  const auto file = OpenEmulatedFile(sample_.path(), device_);
  EXPECT_EQ(file->backend(), std::string("emulated fast"));
  EXPECT_TRUE(file->direct());
  EXPECT_EQ(file->alignment_bytes(), 512u);
  EXPECT_EQ(file->size_bytes(), kSampleBytes);
  Buffer memory = Memory(8192);
  const auto queue = file->OpenQueue({.depth = 4});
  ASSERT_EQ(queue->Submit(std::vector<ReadRequest>{{4096, memory.data(), 8192, 7}}), 1u);
  const auto done = WaitForAll(*queue);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].error, 0);
  EXPECT_TRUE(std::equal(memory.data(), memory.data() + 8192, sample_.bytes().data() + 4096));
}

TEST_F(EmulatedFileTest, RefusesWhatIsNotThereAndWhatMakesNoSense) {
  EXPECT_THROW(OpenEmulatedFile(sample_.path() + ".not", device_), Error);
  device_.flash.random.clear();
  EXPECT_THROW(OpenEmulatedFile(sample_.path(), device_), Error);
}

TEST(CountingFile, CountsReadsBytesSizesErrorsAndTime) {
  FakeClock clock;
  DeviceProfile profile;
  profile.random = {{1, 1e9}};
  CountingFile file(MakeThrottledFile(SampleInMemory(), {.profile = profile, .clock = &clock}),
                    &clock);
  Buffer memory = Memory(kSampleBytes);
  const std::vector<ReadRequest> requests = {{0, memory.data(), 4095, 0},
                                             {0, memory.data(), 4096, 1},
                                             {0, memory.data(), 8191, 2},
                                             {kSampleBytes, memory.data(), 1, 3}};
  const auto first = file.OpenQueue({.depth = 4});
  const auto second = file.OpenQueue({.depth = 1, .capacity = 3});
  EXPECT_EQ(first->Submit(requests), 4u);
  EXPECT_EQ(second->Submit(requests), 3u);  // only what was taken counts
  EXPECT_EQ(WaitForAll(*first).size(), 4u);
  EXPECT_EQ(WaitForAll(*second).size(), 3u);
  const ReadCounts counts = file.counts();
  EXPECT_EQ(counts.reads, 7u);
  EXPECT_EQ(counts.bytes, 2u * (4095 + 4096 + 8191) + 1);
  EXPECT_EQ(counts.errors, 1u);
  EXPECT_EQ(counts.reads_by_log2_bytes[0], 1u);
  EXPECT_EQ(counts.reads_by_log2_bytes[11], 2u);
  EXPECT_EQ(counts.reads_by_log2_bytes[12], 4u);
  EXPECT_EQ(counts.wait_ns, 2 * (4095 + 4096 + 8191) + 1);
  EXPECT_EQ(counts.submit_ns, 0);
}

}  // namespace
}  // namespace hearth
