#include "storage/block_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "storage/test_page_cache.h"

namespace hearth {
namespace {

using testing::HasSubstr;

std::string TempPath(const char* name) {
  return testing::TempDir() + "/" + name + "." + std::to_string(getpid());
}

// Byte i of every sample is i modulo 251, a prime, so that no wrong offset goes unnoticed.
std::vector<std::byte> Sample(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

void CheckReader(const BlockReader& reader, size_t size) {
  ASSERT_EQ(reader.size_bytes(), size);
  const std::vector<std::byte> whole = Sample(size);
  std::vector<std::byte> out(size);
  reader.ReadAt(0, out);
  EXPECT_EQ(out, whole);
  std::vector<std::byte> middle(100);
  reader.ReadAt(777, middle);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), whole.begin() + 777));
  reader.ReadAt(size, {});  // nothing, at the very end

  const auto expect_corrupt = [&](uint64_t offset, size_t count) {
    std::vector<std::byte> buffer(count);
    try {
      reader.ReadAt(offset, buffer);
      ADD_FAILURE() << "read " << count << " bytes at " << offset;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_EQ(error.where(), reader.name());
    }
  };
  expect_corrupt(size, 1);
  expect_corrupt(size - 1, 2);
  expect_corrupt(size + 1, 0);
  expect_corrupt(UINT64_MAX, 2);
}

TEST(BlockReader, ReadsMemory) {
  const auto reader = MakeMemoryReader("memory", Sample(10000));
  EXPECT_EQ(reader->name(), "memory");
  CheckReader(*reader, 10000);
  EXPECT_EQ(MakeMemoryReader("none", {})->size_bytes(), 0u);
}

class FileReaderTest : public testing::Test {
 protected:
  FileReaderTest() : path_(TempPath("block_reader_test")) { WriteFile(1 << 20); }
  ~FileReaderTest() override { std::filesystem::remove(path_); }

  void WriteFile(size_t size) {
    std::ofstream out(path_, std::ios::binary);
    for (const std::byte b : Sample(size)) out.put(static_cast<char>(b));
  }

  std::string path_;
};

TEST_F(FileReaderTest, ReadsAFile) {
  const auto reader = OpenFileReader(path_);
  EXPECT_EQ(reader->name(), path_);
  CheckReader(*reader, 1 << 20);
}

TEST_F(FileReaderTest, ReadsFromSeveralThreads) {
  const auto reader = OpenFileReader(path_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&reader] { CheckReader(*reader, 1 << 20); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Hints change nothing but speed, for ranges that end anywhere.
TEST_F(FileReaderTest, HintsLeaveWhatIsRead) {
  constexpr uint64_t kFileBytes = 1 << 20;
  const auto reader = OpenFileReader(path_);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{5000}, kFileBytes, kFileBytes + 100}) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, kFileBytes, 2 * kFileBytes}) {
      reader->WillRead(offset, bytes);
      CheckReader(*reader, kFileBytes);
      reader->DropCached(offset, bytes);
      CheckReader(*reader, kFileBytes);
    }
  }
}

TEST_F(FileReaderTest, KnowsWhatIsCached) {
  constexpr uint64_t kFileBytes = 4 << 20;
  WriteFile(kFileBytes);
  const auto reader = OpenFileReader(path_);
  DropByHand(path_);
  if (CachedBytes(path_, kFileBytes) != 0) GTEST_SKIP() << "nothing can be dropped here";
  EXPECT_FALSE(reader->IsCached(0, kFileBytes));
  EXPECT_FALSE(reader->IsCached(kFileBytes - 1, 1));
  EXPECT_TRUE(reader->IsCached(5000, 0)) << "nothing is always there";
  std::vector<std::byte> out(kFileBytes);
  reader->ReadAt(0, out);
  EXPECT_TRUE(reader->IsCached(0, kFileBytes));
  EXPECT_TRUE(reader->IsCached(5000, kFileBytes - 5000));
  EXPECT_FALSE(reader->IsCached(5000, 2 * kFileBytes)) << "the file ends before";
  // A part that was dropped makes the whole not cached; runs of pages go as a whole.
  reader->DropCached(kFileBytes / 2, kFileBytes / 2);
  EXPECT_FALSE(reader->IsCached(0, kFileBytes));
  EXPECT_TRUE(MakeMemoryReader("memory", out)->IsCached(5000, 100));
}

TEST_F(FileReaderTest, ReportsAFileThatShrank) {
  const auto reader = OpenFileReader(path_);
  ASSERT_EQ(truncate(path_.c_str(), 1000), 0);
  std::vector<std::byte> out(2000);
  try {
    reader->ReadAt(0, out);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("ended at byte 1000"));
  }
}

TEST(OpenFileReader, RefusesWhatIsNoRegularFile) {
  const auto message = [](const std::string& path) {
    try {
      OpenFileReader(path);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return std::string("opened");
  };
  EXPECT_THAT(message("/no/such/file"), HasSubstr("not_found: /no/such/file: cannot open"));
  EXPECT_THAT(message("/dev/null/file"), HasSubstr("not_found: "));
  EXPECT_THAT(message(""), HasSubstr("not_found"));
  EXPECT_THAT(message(testing::TempDir()), HasSubstr("a directory"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("io: /dev/zero: cannot read: expected a regular "));
  const std::string pipe = TempPath("block_reader_pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(message(pipe), HasSubstr("a pipe"));  // and does not wait for a writer
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace hearth
