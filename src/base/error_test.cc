#include "base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hearth {
namespace {

TEST(Error, IsOneSentence) {
  const Error plain(ErrorCode::kNotFound, "model.gguf", "tensor 'x' is missing");
  EXPECT_STREQ(plain.what(), "model.gguf: tensor 'x' is missing");
  EXPECT_EQ(plain.code(), ErrorCode::kNotFound);
  EXPECT_EQ(plain.where(), "model.gguf");
  EXPECT_EQ(plain.expected(), "");

  const Error compared(ErrorCode::kCorrupt, "model.gguf", "tensor count", "at most 3", "4");
  EXPECT_STREQ(compared.what(), "model.gguf: tensor count: expected at most 3, found 4");
  EXPECT_EQ(compared.expected(), "at most 3");
  EXPECT_EQ(compared.found(), "4");
}

TEST(Error, LeavesOutAnEmptyPlace) {
  EXPECT_STREQ(Error(ErrorCode::kInternal, "", "no idea").what(), "no idea");
  EXPECT_STREQ(Error(ErrorCode::kInternal, "", "x", "1", "2").what(), "x: expected 1, found 2");
}

TEST(Error, SaysWhichSettingItIsAbout) {
  const Error error(ErrorCode::kInvalidArgument, Field{"top_p"}, "value", "0 to 1", "7");
  EXPECT_STREQ(error.what(), "top_p: value: expected 0 to 1, found 7");
  EXPECT_EQ(error.field(), "top_p");
  EXPECT_EQ(error.problem(), "value: expected 0 to 1, found 7");
  const Error file(ErrorCode::kCorrupt, "a.gguf", "it ends early");
  EXPECT_EQ(file.field(), "");
  EXPECT_EQ(file.problem(), "it ends early");
  EXPECT_EQ(Error(ErrorCode::kIo, "", "no room").problem(), "no room");
}

TEST(Error, NamesEveryCode) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const std::string_view name = ErrorCodeName(static_cast<ErrorCode>(i));
    EXPECT_NE(name, "unknown");
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(ErrorCodeName(static_cast<ErrorCode>(99)), "unknown");
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(Printable("plain 'text'"), "plain 'text'");
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable(std::string("a\n\0\x7f\xe9", 5)), "a\\x0a\\x00\\x7f\\xe9");
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
  EXPECT_EQ(Printable("abc", 3), "abc");
  EXPECT_LE(Printable(std::string(1000, '\n')).size(), 90u);
}

}  // namespace
}  // namespace hearth
