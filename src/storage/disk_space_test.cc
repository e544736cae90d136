#include "storage/disk_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

TEST(DiskSpaceTest, SaysWhereItIsTooLittle) {
  const std::string path = testing::TempDir() + "disk_space_test";
  EXPECT_NO_THROW(CheckDiskSpace(path, 0));
  EXPECT_NO_THROW(CheckDiskSpace("disk_space_test", 0));
  try {
    CheckDiskSpace(path, uint64_t{1} << 62);
    FAIL() << "this disk is large";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr(path));
    EXPECT_THAT(error.what(), testing::HasSubstr("free disk space"));
  }
}

TEST(DiskSpaceTest, AFolderThatIsNotThereIsLeftToTheWriter) {
  EXPECT_NO_THROW(CheckDiskSpace("/no/such/folder/file", uint64_t{1} << 62));
}

TEST(DiskSpaceTest, FreeBytesAreThoseOfTheFolderThatWillBeMade) {
  const auto here = FreeDiskBytes(testing::TempDir());
  ASSERT_TRUE(here);
  EXPECT_GT(*here, 0u);
  EXPECT_TRUE(FreeDiskBytes(testing::TempDir() + "not/yet/there"));
}

}  // namespace
}  // namespace hearth
