#include "storage/file_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

#include "base/error.h"
#include "storage/block_reader.h"
#include "storage/test_page_cache.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class FileWriterTest : public testing::Test {
 protected:
  FileWriterTest() : path_(testing::TempDir() + "/file_writer_test." + std::to_string(getpid())) {}
  ~FileWriterTest() override { std::filesystem::remove(path_); }

  std::string path_;
};

std::string MessageOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(ErrorCodeName(error.code())) + ": " + error.what();
  }
  return "done";
}

TEST_F(FileWriterTest, WritesPiecesOfAnySizeInOrder) {
  std::mt19937 random(1);
  std::vector<std::byte> expected;
  FileWriter writer(path_);
  // Around the buffer's size (256 KiB) and far below and above it.
  for (const size_t size : {1u, 100u, 0u, 262143u, 1u, 262144u, 5u, 262145u, 1000000u, 7u}) {
    std::vector<std::byte> piece(size);
    for (std::byte& b : piece) b = static_cast<std::byte>(random());
    writer.Write(piece);
    expected.insert(expected.end(), piece.begin(), piece.end());
    EXPECT_EQ(writer.written_bytes(), expected.size());
  }
  writer.Close();
  writer.Close();  // a second time does nothing
  const auto reader = OpenFileReader(path_);
  std::vector<std::byte> found(reader->size_bytes());
  reader->ReadAt(0, found);
  EXPECT_EQ(found, expected);
  EXPECT_THAT(MessageOf([&] { writer.Write(expected); }), HasSubstr("internal"));
}

TEST_F(FileWriterTest, BytesThatWereWrittenCanBeReplaced) {
  for (const size_t size : {100u, 300000u}) {
    std::vector<std::byte> expected(size, std::byte{1});
    FileWriter writer(path_);
    writer.Write(expected);
    const std::vector<std::byte> patch(50, std::byte{2});
    writer.Overwrite(30, patch);
    std::copy(patch.begin(), patch.end(), expected.begin() + 30);
    writer.Write(patch);
    expected.insert(expected.end(), patch.begin(), patch.end());
    EXPECT_THAT(MessageOf([&] { writer.Overwrite(size + 1, patch); }), HasSubstr("internal"));
    EXPECT_THAT(MessageOf([&] { writer.Overwrite(size + 60, {}); }), HasSubstr("internal"));
    writer.Close();
    std::vector<std::byte> found(expected.size());
    const auto reader = OpenFileReader(path_);
    ASSERT_EQ(reader->size_bytes(), expected.size());
    reader->ReadAt(0, found);
    EXPECT_EQ(found, expected);
  }
}

TEST_F(FileWriterTest, WhatLeavesThePageCacheIsInTheFile) {
  std::vector<std::byte> expected(20 << 20);
  std::mt19937 random(2);
  for (std::byte& b : expected) b = static_cast<std::byte>(random());
  FileWriter writer(path_);
  writer.KeepOutOfPageCache();
  const std::span<const std::byte> bytes(expected);
  for (size_t at = 0; at < bytes.size(); at += 900001) {
    writer.Write(bytes.subspan(at, std::min<size_t>(900001, bytes.size() - at)));
  }
  writer.Close();
  std::vector<std::byte> found(expected.size());
  OpenFileReader(path_)->ReadAt(0, found);
  EXPECT_TRUE(found == expected);
}

TEST_F(FileWriterTest, SmallFilesLeaveThePageCacheToo) {
  const std::vector<std::byte> bytes(100000);
  FileWriter writer(path_);
  writer.Write(bytes);
  writer.Close();
  DropByHand(path_);
  if (CachedBytes(path_, bytes.size()) != 0) {
    GTEST_SKIP() << "this file system keeps its files in memory";
  }
  FileWriter again(path_);
  again.KeepOutOfPageCache();
  again.Write(bytes);
  again.Close();
  EXPECT_EQ(CachedBytes(path_, bytes.size()), 0u);
}

TEST_F(FileWriterTest, ReplacesWhatWasThere) {
  for (const size_t size : {1000u, 10u}) {
    FileWriter writer(path_);
    writer.Write(std::vector<std::byte>(size));
    writer.Close();
    EXPECT_EQ(std::filesystem::file_size(path_), size);
  }
}

TEST_F(FileWriterTest, SaysWhyAFileCannotBeMade) {
  EXPECT_THAT(MessageOf([] { FileWriter("/no/such/folder/file"); }),
              HasSubstr("io: /no/such/folder/file: cannot create: No such file"));
  EXPECT_THAT(MessageOf([] { FileWriter{testing::TempDir()}; }), HasSubstr("Is a directory"));
}

TEST_F(FileWriterTest, ReportsAFullDisk) {
  // /dev/full refuses every byte with ENOSPC: a small write at Close, a large one at once.
  EXPECT_THAT(MessageOf([] {
                FileWriter writer("/dev/full");
                writer.Write(std::vector<std::byte>(10));
                writer.Close();
              }),
              HasSubstr("io: /dev/full: cannot write: No space left on device"));
  FileWriter writer("/dev/full");
  EXPECT_THAT(MessageOf([&] { writer.Write(std::vector<std::byte>(1 << 20)); }),
              HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace hearth
