#include "storage/async/unnamed_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "storage/async/test_async_files.h"

namespace hearth {
namespace {

constexpr uint64_t kBlock = UnnamedFile::kAlignment;

TEST(UnnamedFileTest, ReadsWhatWasWrittenThroughEveryBackend) {
  const TestFolder folder("unnamed_file");
  for (const DirectIo direct : {DirectIo::kAuto, DirectIo::kOff}) {
    for (const IoBackend backend : {IoBackend::kAuto, IoBackend::kPread}) {
      const UnnamedFile file =
          OpenUnnamedFile(folder.Path(""), 64 * kBlock, {.backend = backend, .direct = direct});
      EXPECT_EQ(file.file->size_bytes(), 64 * kBlock);
      EXPECT_LE(file.file->alignment_bytes(), kBlock);
      Buffer memory = Memory(3 * kBlock);
      const std::vector<std::byte> bytes = RandomBytes(3 * kBlock, 5);
      std::memcpy(memory.data(), bytes.data(), bytes.size());
      // Behind a hole, as pages come in any order.
      EXPECT_EQ(file.write(40 * kBlock, {memory.data(), 3 * kBlock}), 0);
      EXPECT_EQ(file.write(2 * kBlock, {memory.data() + kBlock, kBlock}), 0);
      const auto queue = file.file->OpenQueue({});
      const auto read = [&](uint64_t block, uint32_t blocks) {
        std::memset(memory.data(), 0x55, memory.size_bytes());
        const ReadRequest request{.offset = block * kBlock,
                                  .data = memory.data(),
                                  .bytes = blocks * static_cast<uint32_t>(kBlock)};
        EXPECT_EQ(queue->Submit({&request, 1}), 1u);
        for (const ReadCompletion& completion : WaitForAll(*queue)) EXPECT_EQ(completion.error, 0);
      };
      read(40, 3);
      EXPECT_EQ(std::memcmp(memory.data(), bytes.data(), bytes.size()), 0);
      read(2, 1);
      EXPECT_EQ(std::memcmp(memory.data(), bytes.data() + kBlock, kBlock), 0);
      read(20, 1);
      EXPECT_EQ(memory.data()[7], std::byte{0});
      EXPECT_TRUE(std::filesystem::is_empty(folder.Path(""))) << "no folder lists it";
    }
  }
}

TEST(UnnamedFileTest, RefusesFoldersThatAreNone) {
  const TestFolder folder("unnamed_file");
  for (const std::string& none : {folder.Path("missing"), std::string("/dev/null")}) {
    try {
      OpenUnnamedFile(none, kBlock);
      ADD_FAILURE() << none;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound);
      EXPECT_NE(std::string(error.what()).find(none), std::string::npos);
    }
  }
}

TEST(UnnamedFileTest, TheFolderIsTheUsers) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  setenv("TMPDIR", "/some/folder", 1);
  EXPECT_EQ(TemporaryFolder(), "/some/folder");
  unsetenv("TMPDIR");
  EXPECT_EQ(TemporaryFolder(), "/var/tmp");
  if (before != nullptr) setenv("TMPDIR", kept.c_str(), 1);
}

}  // namespace
}  // namespace hearth
