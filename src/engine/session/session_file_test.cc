#include "engine/session/session_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/test_data.h"

namespace hearth {
namespace {

// Pages of random bytes, and a file of them.
struct SavedPages {
  SessionIdentity identity{
      .model_hash = 77,
      .mode = FfnMode::kGated,
      .isa = "avx2",
      .layout = {.codec = KvCodec::kF16, .num_layers = 2, .num_kv_heads = 1, .head_dim = 32}};
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::byte>> pages;

  explicit SavedPages(int64_t length, uint32_t seed = 1) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<TokenId>(random() % 1000));
    pages.resize(static_cast<size_t>(KvLayout::PagesFor(length)));
    for (auto& page : pages) {
      page.resize(identity.layout.page_bytes());
      for (std::byte& byte : page) byte = static_cast<std::byte>(random());
    }
  }

  bool Write(const std::string& path, uint64_t adapters = 0) const {
    AtomicFile file(path, 0600);
    const bool is_whole =
        WriteSession(file, identity, {tokens, adapters}, [&](int64_t page, uint64_t at, auto out) {
          std::memcpy(out.data(), pages[static_cast<size_t>(page)].data() + at, out.size());
          return true;
        });
    file.Finish();
    return is_whole;
  }
};

class SessionFileTest : public ::testing::Test {
 protected:
  std::string path_ = ::testing::TempDir() + "session_file." + std::to_string(getpid());
  ~SessionFileTest() override { std::filesystem::remove(path_); }

  std::unique_ptr<BlockReader> File() const { return OpenFileReader(path_); }
  static std::unique_ptr<BlockReader> FileOf(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return MakeMemoryReader("saved", {bytes.begin(), bytes.end()});
  }

  static ErrorCode CodeOf(const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::kInternal;
  }

  // Whatever `text` is, it is refused, or has the pages that were saved.
  static void ExpectRefusedOrRight(const std::string& text, const SavedPages& saved) {
    try {
      const auto file = FileOf(text);
      const SessionHead head = ReadSessionHead(*file, saved.identity);
      EXPECT_EQ(head.tokens, saved.tokens);
      std::vector<std::vector<std::byte>> read(saved.pages.size());
      ReadSessionPages(*file, saved.identity, head, std::ssize(read),
                       [&](int64_t page, uint64_t, auto bytes) {
                         auto& into = read[static_cast<size_t>(page)];
                         into.insert(into.end(), bytes.begin(), bytes.end());
                         return true;
                       });
      EXPECT_EQ(read, saved.pages);
    } catch (const Error&) {
    }
  }
};

TEST_F(SessionFileTest, WhatIsSavedComesBack) {
  for (const int64_t length : {1, 63, 64, 65, 200}) {
    const SavedPages saved(length);
    ASSERT_TRUE(saved.Write(path_));
    struct stat info = {};
    ASSERT_EQ(stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777u, 0600u);
    const std::string text = ReadWholeFile(path_);
    EXPECT_EQ(text.size(), SessionFileBytes(saved.identity, saved.tokens));
    const SessionHead head = ReadSessionHead(*File(), saved.identity);
    EXPECT_EQ(head.tokens, saved.tokens);
    EXPECT_EQ(head.hash, SessionHashOf(saved.identity, saved.tokens));
    ExpectRefusedOrRight(text, saved);
  }
}

TEST_F(SessionFileTest, PiecesOfLargePagesAndOfSomePages) {
  SavedPages saved(1);
  saved.identity.layout.num_layers = 300;  // 2.3 MiB a page
  saved.tokens.resize(130);
  saved.pages.assign(3, std::vector<std::byte>(saved.identity.layout.page_bytes()));
  for (size_t i = 0; i < 3; ++i) {
    std::memset(saved.pages[i].data(), static_cast<int>(i) + 1, saved.pages[i].size());
  }
  ASSERT_TRUE(saved.Write(path_));
  const auto file = File();
  const SessionHead head = ReadSessionHead(*file, saved.identity);
  uint64_t bytes = 0;
  int pieces = 0;
  EXPECT_TRUE(ReadSessionPages(*file, saved.identity, head, 2,
                               [&](int64_t page, uint64_t at, std::span<const std::byte> piece) {
                                 EXPECT_EQ(at % (uint64_t{1} << 20), 0u);
                                 EXPECT_EQ(piece.back(), static_cast<std::byte>(page + 1));
                                 bytes += piece.size();
                                 ++pieces;
                                 return true;
                               }));
  EXPECT_EQ(bytes, 2 * saved.identity.layout.page_bytes());
  EXPECT_EQ(pieces, 6);
  EXPECT_FALSE(ReadSessionPages(*file, saved.identity, head, 2,
                                [&](int64_t, uint64_t, auto) { return --pieces > 3; }));
  EXPECT_EQ(pieces, 3) << "it ends where it is told to";
}

TEST_F(SessionFileTest, EveryAlteredByteIsNoticed) {
  const SavedPages saved(70);
  ASSERT_TRUE(saved.Write(path_));
  const std::string good = ReadWholeFile(path_);
  // All of the head; of the pages some.
  for (size_t i = 0; i < good.size(); i += i < 500 ? 1 : 97) {
    std::string altered = good;
    altered[i] = static_cast<char>(altered[i] ^ 0x10);
    const auto file = FileOf(altered);
    EXPECT_THROW(
        {
          const SessionHead head = ReadSessionHead(*file, saved.identity);
          ReadSessionPages(*file, saved.identity, head, 2,
                           [](int64_t, uint64_t, auto) { return true; });
        },
        Error)
        << i;
  }
}

TEST_F(SessionFileTest, TruncatedAndLongerFilesAreRefused) {
  const SavedPages saved(70);
  ASSERT_TRUE(saved.Write(path_));
  const std::string good = ReadWholeFile(path_);
  for (size_t size = 0; size < good.size(); size += size < 500 ? 1 : 61) {
    EXPECT_THROW(ReadSessionHead(*FileOf(good.substr(0, size)), saved.identity), Error) << size;
  }
  EXPECT_EQ(CodeOf([&] { ReadSessionHead(*FileOf(good + "x"), saved.identity); }),
            ErrorCode::kCorrupt);
  EXPECT_EQ(CodeOf([&] { ReadSessionHead(*FileOf(""), saved.identity); }),
            ErrorCode::kInvalidArgument);
}

TEST_F(SessionFileTest, FilesOfOthersAreForeign) {
  const SavedPages saved(70);
  ASSERT_TRUE(saved.Write(path_));
  for (int i = 0; i < 6; ++i) {
    SessionIdentity other = saved.identity;
    if (i == 0) ++other.model_hash;
    if (i == 1) other.mode = FfnMode::kPredicted;
    if (i == 2) other.isa = "avx2x";
    if (i == 3) other.layout.codec = KvCodec::kK8V8;
    if (i == 4) other.layout.num_layers = 3;
    if (i == 5) other.activations = TileActivations::kF16;
    EXPECT_EQ(CodeOf([&] { ReadSessionHead(*File(), other); }), ErrorCode::kUnsupported) << i;
  }
}

// A file without adapters is of version 1, as before there were any.
TEST_F(SessionFileTest, AdaptersAreInTheHead) {
  const SavedPages saved(70);
  ASSERT_TRUE(saved.Write(path_));
  const std::string without = ReadWholeFile(path_);
  ASSERT_TRUE(saved.Write(path_, 99));
  const std::string with = ReadWholeFile(path_);
  EXPECT_EQ(without[8], 1);
  EXPECT_EQ(with[8], 2);
  EXPECT_EQ(with.size(), without.size() + 8);
  EXPECT_EQ(with.size(), SessionFileBytes(saved.identity, {saved.tokens, 99}));
  EXPECT_EQ(ReadSessionHead(*FileOf(without), saved.identity).adapters, 0u);
  EXPECT_EQ(ReadSessionHead(*FileOf(with), saved.identity).adapters, 99u);
  for (size_t size = 0; size < with.size(); size += size < 500 ? 1 : 61) {
    EXPECT_THROW(ReadSessionHead(*FileOf(with.substr(0, size)), saved.identity), Error) << size;
  }
  std::string other = with;
  other[56] = 98;
  EXPECT_EQ(CodeOf([&] { ReadSessionHead(*FileOf(other), saved.identity); }), ErrorCode::kCorrupt);
}

TEST_F(SessionFileTest, RandomDamageNeverGivesOtherPages) {
  const SavedPages saved(130);
  ASSERT_TRUE(saved.Write(path_));
  const std::string good = ReadWholeFile(path_);
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    std::string text = good;
    const size_t reach = trial % 2 == 0 ? 600 : text.size();
    for (uint32_t i = 0; i <= random() % 4; ++i) {
      text[random() % reach] = static_cast<char>(random());
    }
    if (trial % 3 == 0) text.resize(random() % text.size());
    ExpectRefusedOrRight(text, saved);
  }
}

}  // namespace
}  // namespace hearth
