// What is particular to files on disk: changes under a reader, the page cache, forbidden io_uring.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <thread>

#include "storage/async/async_reader.h"
#include "storage/async/read_progress.h"
#include "storage/async/test_async_files.h"
#include "storage/test_page_cache.h"

namespace hearth {
namespace {

using testing::HasSubstr;

ErrorCode CodeOf(const std::function<void()>& fn, std::string* message = nullptr) {
  try {
    fn();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(ReadProgress, ContinuesAfterAShortReadWhereItStopped) {
  const ReadLimits limits{100000, 512, 512};
  Buffer memory = Memory(8192);
  ReadProgress read;
  read.Begin({1024, memory.data(), 8192, 9}, limits);
  EXPECT_EQ(read.Advance(512, limits), ReadStep::kAgain);
  EXPECT_EQ(read.offset, 1536u);
  EXPECT_EQ(read.data, memory.data() + 512);
  EXPECT_EQ(read.bytes, 7680u);
  EXPECT_EQ(read.Advance(-EINTR, limits), ReadStep::kAgain);
  EXPECT_EQ(read.bytes, 7680u);
  EXPECT_EQ(read.Advance(7680, limits), ReadStep::kDone);
  EXPECT_EQ(read.tag, 9u);
}

TEST(ReadProgress, NeedsNothingPastTheEndOfTheFile) {
  const ReadLimits limits{1300, 512, 512};
  Buffer memory = Memory(1024);
  ReadProgress read;
  read.Begin({512, memory.data(), 1024, 0}, limits);
  EXPECT_EQ(read.Advance(788, limits), ReadStep::kDone);
  read.Begin({512, memory.data(), 1024, 0}, limits);
  EXPECT_EQ(read.Advance(512, limits), ReadStep::kAgain);
  EXPECT_EQ(read.Advance(276, limits), ReadStep::kDone);
}

TEST(ReadProgress, FailsWhereTheFileEndsEarly) {
  Buffer memory = Memory(1024);
  const ReadLimits direct{100000, 512, 512};
  for (const int64_t result : {0, 100, 513}) {
    ReadProgress read;
    read.Begin({0, memory.data(), 1024, 0}, direct);
    EXPECT_EQ(read.Advance(result, direct), ReadStep::kFailed);
    EXPECT_EQ(read.error, EIO);
  }
  const ReadLimits buffered{100000, 1, 1};
  ReadProgress read;
  read.Begin({0, memory.data(), 1024, 0}, buffered);
  EXPECT_EQ(read.Advance(100, buffered), ReadStep::kAgain);
  EXPECT_EQ(read.Advance(0, buffered), ReadStep::kFailed);
  EXPECT_EQ(read.error, EIO);
}

TEST(ReadProgress, TriesAgainButNotForEver) {
  const ReadLimits limits{100000, 1, 1};
  Buffer memory = Memory(1024);
  ReadProgress read;
  read.Begin({0, memory.data(), 1024, 0}, limits);
  int times = 0;
  while (read.Advance(-EAGAIN, limits) == ReadStep::kAgain && times < 10000) ++times;
  EXPECT_GT(times, 10);
  EXPECT_LT(times, 10000);
  EXPECT_EQ(read.error, EAGAIN);
  read.Begin({0, memory.data(), 1024, 0}, limits);
  EXPECT_EQ(read.Advance(-ENXIO, limits), ReadStep::kFailed);
  EXPECT_EQ(read.error, ENXIO);
}

class DiskFileTest : public testing::TestWithParam<FileKind> {
 protected:
  void SetUp() override {
    try {
      file_ = GetParam().open(sample_.path());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      GTEST_SKIP() << error.what();
    }
  }

  static constexpr size_t kFileBytes = size_t{6} << 20;
  static constexpr uint32_t kReadBytes = 16384;

  const SampleFile sample_{kFileBytes, "disk_file_test"};
  std::unique_ptr<AsyncFile> file_;
};

// Eight requests are one read, and the file ends in the middle of it.
TEST_P(DiskFileTest, OfReadsTogetherThoseFailThatPassANewEnd) {
  constexpr uint64_t kReads = 8, kStride = kReadBytes + 4096, kBefore = 3;
  std::filesystem::resize_file(sample_.path(), kBefore * kStride);
  Buffer memory = Memory(kReads * kReadBytes);
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < kReads; ++i) {
    requests.push_back({i * kStride, memory.data() + i * kReadBytes, kReadBytes, i});
  }
  const auto queue = file_->OpenQueue({.depth = 2, .merge_gap_bytes = 8192});
  ASSERT_EQ(queue->Submit(requests), kReads);
  EXPECT_EQ(queue->gap_bytes(), (kReads - 1) * 4096);
  const std::vector<ReadCompletion> done = WaitForAll(*queue);
  EXPECT_EQ(done.size(), kReads);
  for (const ReadCompletion& completion : done) {
    EXPECT_EQ(completion.error, completion.tag < kBefore ? 0 : EIO) << completion.tag;
    if (completion.error == 0) {
      EXPECT_TRUE(Matches(sample_.bytes(), requests[completion.tag]));
    }
  }
}

TEST_P(DiskFileTest, AReadPastANewEndFailsAndOthersSucceed) {
  constexpr uint64_t kNewEnd = kFileBytes / 2 + 1000;
  std::filesystem::resize_file(sample_.path(), kNewEnd);
  Buffer memory = Memory(4 * size_t{kReadBytes});
  const uint64_t block = kNewEnd / kReadBytes * kReadBytes;  // the one that the end is in
  const uint64_t offsets[] = {0, block, block + kReadBytes, kFileBytes - kReadBytes};
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) {
    requests.push_back({offsets[i], memory.data() + i * kReadBytes, kReadBytes, i});
  }
  const auto queue = file_->OpenQueue({.depth = 2});
  ASSERT_EQ(queue->Submit(requests), 4u);
  for (const ReadCompletion& completion : WaitForAll(*queue)) {
    EXPECT_EQ(completion.error, completion.tag == 0 ? 0 : EIO) << completion.tag;
  }
  EXPECT_TRUE(Matches(sample_.bytes(), requests[0]));
}

// A thread that computes never waits: it only polls.
TEST_P(DiskFileTest, PollingAloneBringsEveryReadToItsEnd) {
  constexpr size_t kReads = 100;
  Buffer memory = Memory(kReads * kReadBytes);
  std::vector<ReadRequest> requests;
  for (uint64_t i = 0; i < kReads; ++i) {
    requests.push_back({i * kReadBytes, memory.data() + i * kReadBytes, kReadBytes, i});
  }
  const auto queue = file_->OpenQueue({.depth = 8});
  ASSERT_EQ(queue->Submit(requests), kReads);
  std::vector<ReadCompletion> done(4);
  while (queue->in_flight() > 0) {
    for (size_t got = queue->Poll(done); got > 0; --got) {
      EXPECT_EQ(done[got - 1].error, 0);
      EXPECT_TRUE(Matches(sample_.bytes(), requests[done[got - 1].tag]));
    }
  }
}

TEST_P(DiskFileTest, IoUringRegistersBuffersWhereMemoryMayBeLocked) {
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (geteuid() != 0 && limit.rlim_cur < (1 << 20)) GTEST_SKIP() << "too little may be locked";
  Buffer memory = Memory(8192);
  const auto queue = file_->OpenQueue({.depth = 8});
  const std::span<std::byte> region = memory.As<std::byte>(memory.size_bytes());
  EXPECT_EQ(queue->RegisterBuffers({&region, 1}), std::string("io_uring") == file_->backend());
}

TEST_P(DiskFileTest, NoticesThatItWasChanged) {
  std::string message;
  const auto check = [&] { file_->CheckUnchanged(); };
  EXPECT_NO_THROW(check());
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::seconds(1);
  std::filesystem::last_write_time(sample_.path(), later);
  EXPECT_EQ(CodeOf(check, &message), ErrorCode::kIo);
  EXPECT_THAT(message, HasSubstr("was written to"));
  std::filesystem::resize_file(sample_.path(), 100);
  EXPECT_EQ(CodeOf(check, &message), ErrorCode::kIo);
  EXPECT_THAT(message, HasSubstr("it has 100 bytes, and had 6291456"));
}

TEST_P(DiskFileTest, NoticesThatItWasReplacedOrRemoved) {
  std::string message;
  const auto check = [&] { file_->CheckUnchanged(); };
  const std::string other = sample_.path() + ".other";
  std::filesystem::copy_file(sample_.path(), other);
  std::filesystem::rename(other, sample_.path());
  EXPECT_EQ(CodeOf(check, &message), ErrorCode::kIo);
  EXPECT_THAT(message, HasSubstr("replaced"));
  std::filesystem::remove(sample_.path());
  EXPECT_EQ(CodeOf(check, &message), ErrorCode::kIo);
  EXPECT_THAT(message, HasSubstr("removed"));
}

TEST_P(DiskFileTest, LeavesLittleOfWhatItReadInThePageCache) {
  DropByHand(sample_.path());
  if (CachedBytes(sample_.path(), kFileBytes) != 0) {
    GTEST_SKIP() << "this file system keeps its files in memory";
  }
  constexpr size_t kReads = kFileBytes / kReadBytes;
  Buffer memory = Memory(kReadBytes);
  auto queue = file_->OpenQueue({.depth = 4});
  for (uint64_t i = 0; i < kReads; ++i) {
    // Every block once, in an order that jumps: 5 and the number of blocks have no common divisor.
    const ReadRequest request{i * 5 % kReads * kReadBytes, memory.data(), kReadBytes, i};
    ASSERT_EQ(queue->Submit({&request, 1}), 1u);
    for (const ReadCompletion& completion : WaitForAll(*queue)) ASSERT_EQ(completion.error, 0);
    if (i % 16 == 0) {
      ASSERT_LE(CachedBytes(sample_.path(), kFileBytes),
                file_->direct() ? size_t{0} : size_t{kUndroppedBytes});
    }
  }
  queue.reset();
  EXPECT_EQ(CachedBytes(sample_.path(), kFileBytes), 0u);
}

TEST_P(DiskFileTest, FilesThatCannotBeReadAreRefused) {
  EXPECT_EQ(CodeOf([] { GetParam().open("/nonexistent/file"); }), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([] { GetParam().open("/tmp"); }), ErrorCode::kIo);
  EXPECT_EQ(CodeOf([] { GetParam().open("/dev/zero"); }), ErrorCode::kIo);
}

INSTANTIATE_TEST_SUITE_P(Backends, DiskFileTest, testing::ValuesIn(DiskKinds()),
                         [](const auto& instance) { return instance.param.name; });

TEST(OpenAsyncFile, RefusesANumberOfThreadsThatMakesNoSense) {
  const SampleFile sample(100, "threads");
  for (const int threads : {-1, 0, 257}) {
    EXPECT_EQ(CodeOf([&] {
                OpenAsyncFile(sample.path(),
                              {.backend = IoBackend::kPread, .pread_threads = threads});
              }),
              ErrorCode::kInvalidArgument);
  }
}

// A file system without direct reads, where there is one: /proc's files are never direct.
TEST(OpenAsyncFile, FallsBackToThePageCacheAndSaysSo) {
  const std::string path = "/proc/version";
  const auto file = OpenAsyncFile(path, {.direct = DirectIo::kAuto});
  EXPECT_FALSE(file->direct());
  EXPECT_EQ(file->alignment_bytes(), 1u);
  EXPECT_THAT(file->note(), HasSubstr("direct"));
  std::string message;
  EXPECT_EQ(CodeOf([&] { OpenAsyncFile(path, {.direct = DirectIo::kOn}); }, &message),
            ErrorCode::kUnsupported);
  EXPECT_THAT(message, HasSubstr("no direct reads"));
}

// From now on, for this thread and those it starts, a system call is forbidden as containers forbid
// those of io_uring.
bool Forbid(uint32_t call) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(OpenAsyncFile, TakesThreadsWhereIoUringIsForbiddenAndSaysSo) {
  const SampleFile sample(50000, "forbidden");
  // Some containers forbid only the second, which is called when something is read.
  for (const uint32_t call : {SYS_io_uring_setup, SYS_io_uring_enter}) {
    std::thread([&, call] {
      if (!Forbid(call)) GTEST_SKIP() << "seccomp is not permitted";
      const auto file = OpenAsyncFile(sample.path());
      EXPECT_STREQ(file->backend(), "pread");
      EXPECT_THAT(file->note(), HasSubstr("no io_uring: Operation not permitted"));
      Buffer memory = Memory(4096);
      const auto queue = file->OpenQueue({.depth = 4});
      const ReadRequest request{8192, memory.data(), 4096, 1};
      EXPECT_EQ(queue->Submit({&request, 1}), 1u);
      EXPECT_EQ(WaitForAll(*queue).at(0).error, 0);
      EXPECT_TRUE(Matches(sample.bytes(), request));
      std::string message;
      EXPECT_EQ(
          CodeOf([&] { OpenAsyncFile(sample.path(), {.backend = IoBackend::kIoUring}); }, &message),
          ErrorCode::kUnsupported);
      EXPECT_THAT(message, HasSubstr("cannot be read with io_uring: Operation not permitted"));
    }).join();
  }
}

TEST(OpenAsyncFile, ARingThatTakesNoMoreFailsReadsAndEnds) {
  const SampleFile sample(400000, "broken");
  std::thread([&] {
    std::unique_ptr<AsyncFile> file;
    try {
      file = OpenAsyncFile(sample.path(), {.backend = IoBackend::kIoUring});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    constexpr uint32_t kBytes = 4096;
    Buffer memory = Memory(size_t{40} * kBytes);
    std::vector<ReadRequest> requests;
    for (uint64_t i = 0; i < 40; ++i) {
      requests.push_back({i * kBytes, memory.data() + i * kBytes, kBytes, i});
    }
    const auto queue = file->OpenQueue({.depth = 20});
    EXPECT_EQ(queue->Submit(std::span(requests).first(10)), 10u);
    if (!Forbid(SYS_io_uring_enter)) GTEST_SKIP() << "seccomp is not permitted";
    EXPECT_EQ(queue->Submit(std::span(requests).subspan(10)), 30u);
    const std::vector<ReadCompletion> done = WaitForAll(*queue);
    EXPECT_EQ(done.size(), 40u);
    for (const ReadCompletion& completion : done) {
      EXPECT_EQ(completion.error, completion.tag < 10 ? 0 : EPERM) << completion.tag;
      if (completion.error == 0) {
        EXPECT_TRUE(Matches(sample.bytes(), requests[completion.tag]));
      }
    }
    EXPECT_EQ(queue->Submit(std::span(requests).first(1)), 1u);
    EXPECT_EQ(WaitForAll(*queue).at(0).error, EPERM);
  }).join();
}

}  // namespace
}  // namespace hearth
