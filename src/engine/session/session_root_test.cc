#include "engine/session/session_root.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/test_folder.h"
#include "storage/file_handle.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

class SessionRootTest : public testing::Test {
 protected:
  // A session of so many bytes that was used so many hours ago.
  void Add(const std::string& model, const std::string& name, size_t bytes, int hours) const {
    fs::create_directories(root_ + "/" + model);
    std::ofstream(root_ + "/" + model + "/lock", std::ios::app).flush();
    const std::string path = PathOf(model, name);
    std::ofstream(path) << std::string(bytes, 'x');
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  std::string PathOf(const std::string& model, const std::string& name) const {
    return root_ + "/" + model + "/" + name + ".session";
  }
  uint64_t Prepare(uint64_t limit) const {
    return PrepareSessionRoot({.folder = root_, .limit_bytes = limit}, "own");
  }

  TestFolder folder_{"session_root"};
  const std::string root_ = folder_.Path("state/hearth/sessions");
};

TEST_F(SessionRootTest, IsMadeForItsOwnerAlone) {
  EXPECT_EQ(Prepare(100), 100u);
  EXPECT_EQ(fs::status(root_).permissions(), fs::perms::owner_all);
}

TEST_F(SessionRootTest, TheOldestSessionsOfOtherModelsGo) {
  Add("own", "mine", 1000, 9);
  Add("one", "old", 30, 3);
  Add("one", "new", 30, 1);
  Add("other", "older", 30, 5);
  std::ofstream(root_ + "/other/note.txt") << "not ours";
  EXPECT_EQ(Prepare(1000), 910u) << "they take less than half";
  EXPECT_EQ(Prepare(120), 60u);
  EXPECT_FALSE(fs::exists(PathOf("other", "older")));
  EXPECT_TRUE(fs::exists(PathOf("one", "old")));
  EXPECT_TRUE(fs::exists(PathOf("one", "new")));
  EXPECT_TRUE(fs::exists(PathOf("own", "mine"))) << "the store itself sees to these";
  EXPECT_TRUE(fs::exists(root_ + "/other/note.txt"));
}

TEST_F(SessionRootTest, WhatAServerUsesStays) {
  Add("used", "a", 80, 9);
  Add("free", "b", 80, 1);
  const FileHandle lock(open((root_ + "/used/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
  EXPECT_EQ(Prepare(100), 50u) << "at least half is left, whatever others use";
  EXPECT_TRUE(fs::exists(PathOf("used", "a")));
  EXPECT_FALSE(fs::exists(PathOf("free", "b")));
}

TEST_F(SessionRootTest, AFolderThatCannotBeMadeIsAnError) {
  try {
    PrepareSessionRoot({.folder = "/proc/none/sessions", .limit_bytes = 1}, "own");
    ADD_FAILURE() << "it was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

TEST_F(SessionRootTest, NamesTellModelsAndSettingsApart) {
  SessionIdentity identity = {
      .model_hash = 1, .mode = FfnMode::kDense, .isa = "scalar", .layout = {}};
  const std::string name = SessionFolderName("a model/Q4_0", identity);
  EXPECT_THAT(name, testing::MatchesRegex("a_model_Q4_0-[0-9a-f]+"));
  identity.model_hash = 2;
  EXPECT_NE(SessionFolderName("a model/Q4_0", identity), name);
  identity.model_hash = 1;
  identity.mode = FfnMode::kGated;
  EXPECT_NE(SessionFolderName("a model/Q4_0", identity), name);
  identity.mode = FfnMode::kDense;
  identity.activations = TileActivations::kF16;
  EXPECT_NE(SessionFolderName("a model/Q4_0", identity), name);
}

}  // namespace
}  // namespace hearth
