#include "engine/load/load_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/test_data.h"
#include "storage/test_page_cache.h"

namespace hearth {
namespace {

using testing::HasSubstr;

// A copy of a small model, whose pages may be dropped.
class LoadChunksTest : public testing::Test {
 protected:
  LoadChunksTest() : path_(testing::TempDir() + "/load_chunks_test." + std::to_string(getpid())) {
    std::filesystem::copy_file(SourcePath("tests/goldens/llama.gguf"), path_,
                               std::filesystem::copy_options::overwrite_existing);
    file_ = std::make_unique<GgufFile>(GgufFile::Open(path_));
    plan_ = PlanLoad(*file_);
  }
  ~LoadChunksTest() override { std::filesystem::remove(path_); }

  std::vector<std::byte> Stored(const LoadChunk& chunk) const {
    std::vector<std::byte> bytes(chunk.stored_bytes());
    file_->ReadTensor(*chunk.tensor->stored, chunk.stored_offset(), bytes);
    return bytes;
  }

  // Reads all chunks with so many buffers.
  void CheckReads(LoadSource& source, const std::vector<LoadChunk>& chunks, size_t buffers) const {
    uint64_t most_bytes = 0;
    for (const LoadChunk& chunk : chunks) most_bytes = std::max(most_bytes, chunk.stored_bytes());
    LoadReader reader(source, most_bytes, buffers);
    size_t asked = 0;
    for (const LoadChunk& chunk : chunks) {
      while (!reader.full() && asked < chunks.size()) reader.Ask(chunks[asked++]);
      const LoadReader::Taken taken = reader.Take();
      ASSERT_EQ(&taken.chunk, &chunk);
      const std::vector<std::byte> expected = Stored(chunk);
      ASSERT_EQ(taken.stored.size(), expected.size());
      ASSERT_EQ(std::memcmp(taken.stored.data(), expected.data(), expected.size()), 0);
      reader.Done(0);
    }
    EXPECT_TRUE(reader.empty());
  }

  const std::string path_;
  std::unique_ptr<GgufFile> file_;
  LoadPlan plan_;
};

TEST_F(LoadChunksTest, ChunksAreAllRowsOnceInFileOrder) {
  uint64_t stored = 0;
  for (const ResidentTensor& tensor : plan_.tensors) stored += tensor.stored->bytes;
  for (const uint64_t most_bytes : {1, 3000, 1 << 20}) {
    uint64_t sum = 0, end = 0;
    for (const LoadChunk& chunk : SplitIntoChunks(plan_.tensors, most_bytes)) {
      EXPECT_GE(chunk.file_offset(), end);
      end = chunk.file_offset() + chunk.stored_bytes();
      sum += chunk.stored_bytes();
      EXPECT_TRUE(!chunk.tensor->is_tiled || chunk.first_row % TileLayout::kRows == 0);
    }
    EXPECT_EQ(sum, stored) << most_bytes;
  }
}

TEST_F(LoadChunksTest, ReadsWhatTheFileHasCachedOrNot) {
  for (const uint64_t most_bytes : {2000, 70000}) {
    const std::vector<LoadChunk> chunks = SplitIntoChunks(plan_.tensors, most_bytes);
    for (const size_t buffers : {1, 2, 5}) {
      for (const bool may_cache : {false, true}) {
        LoadSource source(*file_, {}, may_cache);
        DropByHand(path_);
        CheckReads(source, chunks, buffers);
        CheckReads(source, chunks, buffers);  // by now some of it is cached
      }
    }
  }
}

TEST_F(LoadChunksTest, ReadsAroundTheCacheOnlyWhatItDoesNotHave) {
  const std::vector<LoadChunk> chunks = SplitIntoChunks(plan_.tensors, 1 << 20);
  LoadSource source(*file_, {}, true);
  LoadSource through(*file_, {.direct = DirectIo::kOff}, true);
  DropByHand(path_);
  if (!source.part(0).direct() || CachedBytes(path_, file_->file_bytes()) != 0) {
    GTEST_SKIP() << "this file system has no direct reads, or no cache to drop";
  }
  EXPECT_TRUE(source.ReadsAround(chunks.front()));
  EXPECT_FALSE(through.ReadsAround(chunks.front()));
  Stored(chunks.front());
  EXPECT_FALSE(source.ReadsAround(chunks.front()));
}

TEST_F(LoadChunksTest, SaysThatAFileEndedEarly) {
  const std::vector<LoadChunk> chunks = SplitIntoChunks(plan_.tensors, 1 << 20);
  for (const DirectIo direct : {DirectIo::kAuto, DirectIo::kOff}) {
    LoadSource source(*file_, {.direct = direct}, true);
    LoadReader reader(source, chunks.back().stored_bytes(), 1);
    std::filesystem::resize_file(path_, 8192);
    DropByHand(path_);
    reader.Ask(chunks.back());
    try {
      reader.Take();
      ADD_FAILURE() << "the chunk is not there any more";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), HasSubstr(path_));
    }
    std::filesystem::resize_file(path_, file_->file_bytes());
  }
}

TEST_F(LoadChunksTest, SaysThatAFileWasReplaced) {
  std::filesystem::resize_file(path_, file_->file_bytes() + 1);
  EXPECT_THROW(LoadSource(*file_, {}, true), Error);
}

TEST(CacheChoiceTest, CachesWhereADiskIsSlow) {
  constexpr uint64_t kHalf = CacheChoice::kDecideBytes / 2;
  const auto choose = [](bool may_cache, double wait_seconds) {
    CacheChoice choice(may_cache);
    choice.Note(kHalf, wait_seconds, 1);
    EXPECT_FALSE(choice.caches()) << "too early to tell";
    choice.Note(kHalf, wait_seconds, 1);
    const bool caches = choice.caches();
    choice.Note(kHalf, caches ? 0 : 1000, 1);
    EXPECT_EQ(choice.caches(), caches) << "decided once";
    return caches;
  };
  EXPECT_FALSE(choose(true, 0));
  EXPECT_FALSE(choose(true, CacheChoice::kWorthwhile));
  EXPECT_TRUE(choose(true, CacheChoice::kWorthwhile + 0.1));
  EXPECT_FALSE(choose(false, 1000)) << "a memory limit counts the cache";
}

}  // namespace
}  // namespace hearth
