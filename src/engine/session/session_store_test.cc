#include "engine/session/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/test_data.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Files may not grow beyond this while it lives.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

class SessionStoreTest : public ::testing::Test {
 protected:
  SessionStoreTest() { fs::remove_all(folder_); }
  ~SessionStoreTest() override { fs::remove_all(folder_); }

  std::unique_ptr<SessionStore> Open(uint64_t limit = uint64_t{1} << 30, uint64_t model = 1) {
    return std::make_unique<SessionStore>(
        SessionStoreOptions{.folder = folder_,
                            .limit_bytes = limit,
                            .warn = [this](const std::string& said) { said_.push_back(said); }},
        Identity(model));
  }
  static SessionIdentity Identity(uint64_t model = 1) {
    return {.model_hash = model,
            .mode = FfnMode::kDense,
            .isa = "scalar",
            .layout = {.codec = KvCodec::kF16, .num_layers = 1, .num_kv_heads = 1, .head_dim = 32}};
  }
  static uint64_t FileBytes(int64_t tokens) {
    return SessionFileBytes(Identity(), Text(1, tokens));
  }

  // Of a text that begins with `tag`.
  static std::vector<TokenId> Text(TokenId tag, int64_t length) {
    std::vector<TokenId> tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), 10);
    tokens[0] = tag;
    return tokens;
  }
  static bool Save(SessionStore& store, const std::vector<TokenId>& tokens,
                   SessionStore::Time last_used = SessionStore::Time::clock::now()) {
    return store.Save(
        tokens,
        [&](int64_t page, uint64_t, std::span<std::byte> out) {
          std::memset(out.data(), static_cast<int>(tokens[0] + page), out.size());
          return true;
        },
        last_used);
  }
  // Tokens that came back, with the pages that Save wrote.
  static int64_t Restore(SessionStore& store, const std::vector<TokenId>& text) {
    return store.Restore(text, [&](int64_t page, uint64_t, std::span<const std::byte> bytes) {
      for (const std::byte byte : bytes) EXPECT_EQ(byte, static_cast<std::byte>(text[0] + page));
      return true;
    });
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_))
      names.push_back(file.path().filename());
    return names;
  }
  std::string OnlySession() const {
    std::string found;
    for (const auto& file : fs::directory_iterator(folder_)) {
      if (file.path().extension() == ".session") found = file.path();
    }
    return found;
  }

  const std::string folder_ = ::testing::TempDir() + "session_store." + std::to_string(getpid());
  std::vector<std::string> said_;
};

TEST_F(SessionStoreTest, FindsWhatWasSavedAlsoLater) {
  auto store = Open();
  EXPECT_TRUE(Save(*store, Text(1, 100)));
  EXPECT_TRUE(Save(*store, Text(2, 30)));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(store->Covers(Text(1, 100)));
    EXPECT_TRUE(store->Covers(Text(1, 7)));
    EXPECT_FALSE(store->Covers(Text(1, 101)));
    EXPECT_EQ(store->LongestCommon(Text(2, 90)), 30);
    EXPECT_EQ(store->LongestCommon(Text(3, 90)), 0);
    EXPECT_EQ(Restore(*store, Text(1, 300)), 100);
    EXPECT_EQ(Restore(*store, Text(1, 65)), 65);
    EXPECT_EQ(Restore(*store, Text(3, 65)), 0);
    const SessionCounts counts = store->counts();
    EXPECT_EQ(counts.files, 2);
    EXPECT_EQ(counts.bytes, FileBytes(100) + FileBytes(30));
    EXPECT_EQ(counts.restored, 2);
    EXPECT_EQ(counts.restored_tokens, 165);
    store.reset();
    store = Open();
  }
  EXPECT_THAT(said_, IsEmpty());
  struct stat info = {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
  ASSERT_EQ(stat(OnlySession().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(SessionStoreTest, ATextThatGoesOnTakesThePlaceOfItsBeginning) {
  const auto store = Open();
  Save(*store, Text(1, 50));
  Save(*store, Text(1, 80));
  Save(*store, Text(1, 80));
  EXPECT_EQ(store->counts().files, 1);
  EXPECT_EQ(Files().size(), 2u) << "and the lock";
  EXPECT_EQ(store->counts().evicted, 0);
  EXPECT_EQ(Restore(*store, Text(1, 80)), 80);
}

TEST_F(SessionStoreTest, KeepsWithinItsLimitTheOnesUsedLast) {
  const uint64_t limit = 3 * FileBytes(60) + 10;
  auto store = Open(limit);
  for (const TokenId tag : {1, 2, 3}) Save(*store, Text(tag, 60));
  EXPECT_EQ(Restore(*store, Text(1, 60)), 60);
  Save(*store, Text(4, 60));
  EXPECT_FALSE(store->Covers(Text(2, 60)));
  EXPECT_TRUE(store->Covers(Text(1, 60)));
  EXPECT_EQ(store->counts().evicted, 1);
  EXPECT_EQ(store->counts().evicted_bytes, FileBytes(60));
  EXPECT_LE(store->counts().bytes, limit);
  // The order outlives the store, as far as the clock of the file system tells them apart.
  store.reset();
  store = Open(FileBytes(60));
  EXPECT_EQ(store->counts().files, 1);
  EXPECT_EQ(Files().size(), 2u);
  // What is larger than all of it is not saved, and takes nobody's place.
  EXPECT_FALSE(Save(*store, Text(5, 65)));
  EXPECT_FALSE(Save(*store, Text(6, 65)));
  EXPECT_EQ(store->counts().files, 1);
  EXPECT_EQ(store->counts().failed, 2);
  ASSERT_EQ(said_.size(), 1u) << "it is said once";
  EXPECT_THAT(said_[0], HasSubstr("the limit of all is"));
  // A disk that fails is something else.
  {
    const SmallFiles small(10);
    EXPECT_FALSE(Save(*store, Text(7, 60)));
  }
  EXPECT_EQ(said_.size(), 2u);
}

TEST_F(SessionStoreTest, WhatGoesOnNeedsNoRoomBesideItsBeginning) {
  const auto store = Open(FileBytes(60) + FileBytes(200));
  const auto now = SessionStore::Time::clock::now();
  EXPECT_TRUE(Save(*store, Text(1, 60), now - std::chrono::seconds(9)));
  EXPECT_TRUE(Save(*store, Text(2, 180), now - std::chrono::seconds(5)));
  EXPECT_TRUE(Save(*store, Text(2, 200), now));
  EXPECT_TRUE(store->Covers(Text(1, 60)));
  EXPECT_TRUE(store->Covers(Text(2, 200)));
  EXPECT_EQ(store->counts().evicted, 0);
  EXPECT_EQ(store->counts().bytes, FileBytes(60) + FileBytes(200));
  EXPECT_EQ(Files().size(), 3u) << "and the lock";
}

TEST_F(SessionStoreTest, AFileThatCannotBeReadStillTakesItsRoom) {
  const auto store = Open(2 * FileBytes(60));
  EXPECT_TRUE(Save(*store, Text(1, 60)));
  const std::string path = OnlySession();
  fs::rename(path, path + ".away");
  fs::create_directory(path);  // which opens, and fails to be read
  EXPECT_EQ(Restore(*store, Text(1, 60)), 0);
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_FALSE(store->Covers(Text(1, 60)));
  EXPECT_EQ(Restore(*store, Text(1, 60)), 0);
  EXPECT_EQ(said_.size(), 1u) << "nobody tries again";
  EXPECT_EQ(store->counts().files, 1);
  EXPECT_EQ(store->counts().bytes, FileBytes(60));
  fs::remove(path);
  fs::rename(path + ".away", path);
  // It goes where room is needed, and may be written again.
  EXPECT_TRUE(Save(*store, Text(2, 60)));
  EXPECT_TRUE(Save(*store, Text(1, 60)));
  EXPECT_EQ(store->counts().files, 2);
  EXPECT_EQ(Restore(*store, Text(1, 60)), 60);
}

TEST_F(SessionStoreTest, TheOrderIsThatOfUseNotOfWriting) {
  const auto now = SessionStore::Time::clock::now();
  const auto ago = [&](int seconds) { return now - std::chrono::seconds(seconds); };
  auto store = Open(2 * FileBytes(60));
  // Newest first, as a server stops.
  EXPECT_TRUE(Save(*store, Text(1, 60), ago(10)));
  EXPECT_TRUE(Save(*store, Text(2, 60), ago(20)));
  EXPECT_FALSE(Save(*store, Text(3, 60), ago(30))) << "the others were used later";
  EXPECT_EQ(store->counts().evicted, 0);
  EXPECT_TRUE(said_.empty());
  EXPECT_TRUE(Save(*store, Text(4, 60), ago(15)));
  EXPECT_TRUE(store->Covers(Text(1, 60)));
  EXPECT_FALSE(store->Covers(Text(2, 60)));
  store.reset();
  store = Open(FileBytes(60));
  EXPECT_EQ(store->counts().files, 1);
  EXPECT_TRUE(store->Covers(Text(1, 60)));
}

TEST_F(SessionStoreTest, MoreTokensThanAnybodySavesAreNotRead) {
  EXPECT_TRUE(Save(*Open(), Text(1, 60)));
  const std::string path = OnlySession();
  fs::resize_file(path, uint64_t{16} << 20);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t tokens = kMostSessionTokens + 1;
  file.seekp(40);
  file.write(reinterpret_cast<const char*>(&tokens), sizeof(tokens));
  file.close();
  EXPECT_EQ(Open()->counts().files, 0);
  EXPECT_THAT(said_.back(), HasSubstr("at most 1048576"));
}

TEST_F(SessionStoreTest, TextsOfOtherAdaptersAreOtherTexts) {
  auto store = Open();
  const std::vector<TokenId> text = Text(1, 100);
  const auto save = [&](uint64_t adapters) {
    return store->Save({text, adapters}, [&](int64_t, uint64_t, std::span<std::byte> out) {
      std::memset(out.data(), static_cast<int>(adapters), out.size());
      return true;
    });
  };
  const auto restore = [&](uint64_t adapters) {
    return store->Restore({text, adapters}, [&](int64_t, uint64_t, std::span<const std::byte> in) {
      EXPECT_EQ(in[0], static_cast<std::byte>(adapters));
      return true;
    });
  };
  EXPECT_TRUE(save(0));
  EXPECT_TRUE(save(7));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(store->counts().files, 2) << "neither takes the place of the other";
    EXPECT_TRUE(store->Covers({text, 7}));
    EXPECT_FALSE(store->Covers({text, 8}));
    EXPECT_EQ(restore(0), 100);
    EXPECT_EQ(restore(7), 100);
    EXPECT_EQ(restore(8), 0);
    store.reset();
    store = Open();
  }
  EXPECT_THAT(said_, IsEmpty());
  // A file in the place of another one.
  for (const auto& file : fs::directory_iterator(folder_)) {
    if (fs::file_size(file) != SessionFileBytes(Identity(), text)) continue;
    for (const auto& other : fs::directory_iterator(folder_)) {
      if (fs::file_size(other) != SessionFileBytes(Identity(), {text, 7})) continue;
      fs::copy_file(other, file, fs::copy_options::overwrite_existing);
      break;
    }
    break;
  }
  EXPECT_EQ(restore(0), 0);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0], HasSubstr("it was computed with other adapters"));
}

TEST_F(SessionStoreTest, OneAtATimeAndNobodyElse) {
  const auto store = Open();
  EXPECT_THAT([&] { Open(); }, testing::ThrowsMessage<Error>(HasSubstr("another server")));
  const std::string open_folder = folder_ + ".open";
  fs::create_directory(open_folder);
  fs::permissions(open_folder, fs::perms::owner_all | fs::perms::group_read);
  EXPECT_THAT([&] { SessionStore({.folder = open_folder}, Identity()); },
              testing::ThrowsMessage<Error>(HasSubstr("chmod 700")));
  fs::remove_all(open_folder);
  const std::string file = folder_ + "/lock";
  EXPECT_THROW(SessionStore({.folder = file}, Identity()), Error);
  EXPECT_THROW(SessionStore({.folder = file + "/x"}, Identity()), Error);
}

TEST_F(SessionStoreTest, FilesOfOtherModelsAreLeftAlone) {
  Save(*Open(), Text(1, 50));
  {
    const auto other = Open(FileBytes(50), 2);
    EXPECT_EQ(other->counts().files, 0);
    EXPECT_EQ(Restore(*other, Text(1, 50)), 0);
    Save(*other, Text(1, 50));
    EXPECT_EQ(said_.size(), 1u);
    EXPECT_THAT(said_[0], HasSubstr("1 sessions of other models"));
  }
  EXPECT_EQ(Restore(*Open(), Text(1, 50)), 50);
}

TEST_F(SessionStoreTest, WhatIsDamagedIsRemovedAndSaidOnce) {
  Save(*Open(), Text(1, 50));
  const std::string path = OnlySession();
  const std::string good = ReadWholeFile(path);
  const auto put = [&](const std::string& text) { std::ofstream(path) << text; };
  // Found at the start: a file that was cut short, an altered head.
  std::string altered = good;
  altered[60] = 'x';
  for (const std::string& text : {good.substr(0, good.size() / 2), altered}) {
    put(text);
    said_.clear();
    const auto store = Open();
    EXPECT_EQ(store->counts().files, 0);
    EXPECT_EQ(store->counts().failed, 1);
    EXPECT_EQ(Restore(*store, Text(1, 50)), 0);
    EXPECT_FALSE(fs::exists(path));
    EXPECT_EQ(said_.size(), 1u);
  }
  // Found when it is read: an altered page.
  put(good);
  said_.clear();
  const auto store = Open();
  EXPECT_EQ(store->counts().files, 1);
  altered = good;
  altered[good.size() - 100] = 'x';
  put(altered);
  EXPECT_EQ(store->Restore(Text(1, 50), [](auto...) { return true; }), 0);
  EXPECT_FALSE(store->Covers(Text(1, 50)));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(said_.size(), 1u);
  // Gone: nobody's fault.
  Save(*store, Text(1, 50));
  fs::remove(path);
  EXPECT_EQ(Restore(*store, Text(1, 50)), 0);
  EXPECT_FALSE(store->Covers(Text(1, 50)));
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(SessionStoreTest, WhatIsNotItsOwnStays) {
  Open();
  const std::string leftover = folder_ + "/0123456789abcdef.session.123.partial";
  for (const std::string& name :
       {std::string("notes.txt"), std::string("0123456789abcdef.session"),
        std::string("x123456789abcdef.session"), std::string("0123456789abcdef.session.bak")}) {
    std::ofstream(folder_ + "/" + name) << "mine";
  }
  std::ofstream(leftover) << "half";
  fs::create_symlink("/etc/hostname", folder_ + "/1123456789abcdef.session");
  const auto store = Open();
  EXPECT_FALSE(fs::exists(leftover));
  EXPECT_EQ(Files().size(), 6u);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0], HasSubstr("no saved session"));
}

TEST_F(SessionStoreTest, AWriteThatFailsIsSaidOnceAndLeavesNothing) {
  const auto store = Open();
  Save(*store, Text(1, 50));
  {
    const SmallFiles limit(4096);
    EXPECT_FALSE(Save(*store, Text(2, 50)));
    EXPECT_FALSE(Save(*store, Text(3, 50)));
  }
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_EQ(store->counts().failed, 2);
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(Restore(*store, Text(1, 50)), 50) << "what was there is";
  EXPECT_TRUE(Save(*store, Text(2, 50)));
  {
    const SmallFiles limit(4096);
    EXPECT_FALSE(Save(*store, Text(3, 50)));
  }
  EXPECT_EQ(said_.size(), 2u);
  EXPECT_FALSE(store->Save(Text(4, 50), [](auto...) { return false; }));
  EXPECT_EQ(said_.size(), 2u) << "whoever ends it knows";
  EXPECT_EQ(Files().size(), 3u);
}

}  // namespace
}  // namespace hearth
