#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth {
namespace {

TEST(ParseSize, ReadsSizesAsPeopleWriteThem) {
  EXPECT_EQ(ParseSize("0", "x"), 0u);
  EXPECT_EQ(ParseSize("512", "x"), 512u);
  EXPECT_EQ(ParseSize("512B", "x"), 512u);
  EXPECT_EQ(ParseSize("1k", "x"), 1024u);
  EXPECT_EQ(ParseSize("1K", "x"), 1024u);
  EXPECT_EQ(ParseSize("3M", "x"), 3u << 20);
  EXPECT_EQ(ParseSize("3MB", "x"), 3u << 20);
  EXPECT_EQ(ParseSize("3MiB", "x"), 3u << 20);
  EXPECT_EQ(ParseSize("3mb", "x"), 3u << 20);
  EXPECT_EQ(ParseSize("2.5G", "x"), 2684354560u);
  EXPECT_EQ(ParseSize("1T", "x"), uint64_t{1} << 40);
  EXPECT_EQ(ParseSize("1e3", "x"), 1000u);
  EXPECT_EQ(ParseSize("4194304T", "x"), uint64_t{1} << 62);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text : {"", "G", "x", "-1", "-1G", "1X", "1 G", " 1", "1GBB", "1iB", "1Gi",
                           "nan", "inf", "1e30", "4194305T", "0x10", "1G\n", "1,5G"}) {
    try {
      ParseSize(text, "--memory");
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.where(), "--memory");
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("\n")));
    }
  }
}

TEST(FormatSize, KeepsAboutThreeDigits) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(1024), "1.00 KiB");
  EXPECT_EQ(FormatSize(10 * 1024), "10.0 KiB");
  EXPECT_EQ(FormatSize(200u << 20), "200 MiB");
  EXPECT_EQ(FormatSize(2684354560u), "2.50 GiB");
  EXPECT_EQ(FormatSize(uint64_t{5} << 40), "5.00 TiB");
  EXPECT_EQ(FormatSize(UINT64_MAX), "16777216 TiB");
}

}  // namespace
}  // namespace hearth
