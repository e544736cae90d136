#include "storage/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/test_data.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest() : folder_(testing::TempDir() + "/atomic_file." + std::to_string(getpid())) {
    fs::create_directory(folder_);
  }
  ~AtomicFileTest() override { fs::remove_all(folder_); }

  static void Put(AtomicFile& file, const std::string& text) {
    file.Write(std::as_bytes(std::span(text)));
  }
  std::ptrdiff_t NumFiles() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const std::string folder_;
  const std::string path_ = folder_ + "/file";
};

TEST_F(AtomicFileTest, ReplacesOnlyWhenFinished) {
  {
    AtomicFile first(path_);
    Put(first, "one");
    EXPECT_FALSE(fs::exists(path_));
    first.Finish();
    first.Finish();  // a second time does nothing
  }
  EXPECT_EQ(ReadWholeFile(path_), "one");
  {
    AtomicFile second(path_);
    Put(second, "two");
  }
  EXPECT_EQ(ReadWholeFile(path_), "one") << "never finished";
  EXPECT_EQ(NumFiles(), 1) << "nothing is left behind";
  AtomicFile third(path_);
  Put(third, "three");
  third.Finish();
  EXPECT_EQ(ReadWholeFile(path_), "three");
}

TEST_F(AtomicFileTest, LinksStayAndLeadToTheNewFile) {
  const std::string link = folder_ + "/link";
  for (const char* text : {"made", "replaced"}) {
    if (!fs::exists(link)) fs::create_symlink("file", link);
    AtomicFile file(link);
    Put(file, text);
    file.Finish();
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(ReadWholeFile(path_), text);
  }
  EXPECT_EQ(NumFiles(), 2);
}

TEST_F(AtomicFileTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(AtomicFile file(folder_), Error);
  EXPECT_THROW(AtomicFile file("/dev/null"), Error);
  EXPECT_THROW(AtomicFile file(folder_ + "/missing/file"), Error);
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(AtomicFileTest, CanBeReadBeforeItHasItsName) {
  AtomicFile file(path_);
  Put(file, "early");
  file.Flush();
  EXPECT_EQ(ReadWholeFile(file.temporary_path()), "early");
  Put(file, " and late");
  file.Finish();
  EXPECT_EQ(ReadWholeFile(path_), "early and late");
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(AtomicFileTest, CheckingLeavesNothing) {
  CheckWritable(path_);
  EXPECT_THROW(CheckWritable(folder_), Error);
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(AtomicFileTest, WhatKilledProcessesLeftIsRemoved) {
  const pid_t gone = fork();
  if (gone == 0) {
    AtomicFile never_finished(path_);
    _exit(0);  // as if killed: no destructor runs
  }
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  const std::string left = path_ + "." + std::to_string(gone) + ".partial";
  ASSERT_TRUE(fs::exists(left));
  AtomicFile under_way(folder_ + "/other");
  std::ofstream(folder_ + "/mine.partial") << "of somebody who names files so";
  RemoveAbandoned(folder_);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(under_way.temporary_path()));
  EXPECT_EQ(NumFiles(), 2);
  RemoveAbandoned(folder_ + "/nowhere");
}

TEST_F(AtomicFileTest, TheNextOfAPathRemovesWhatAKilledOneLeft) {
  const pid_t gone = fork();
  if (gone == 0) {
    AtomicFile never_finished(path_);
    AtomicFile other(folder_ + "/other");
    _exit(0);
  }
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  EXPECT_EQ(NumFiles(), 2);
  WriteFileAtomically(path_, "whole");
  EXPECT_EQ(NumFiles(), 2) << "the other path's is left alone";
  EXPECT_FALSE(fs::exists(path_ + "." + std::to_string(gone) + ".partial"));
}

}  // namespace
}  // namespace hearth
