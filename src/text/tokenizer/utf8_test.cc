#include "text/tokenizer/utf8.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <random>
#include <string>

namespace hearth {
namespace {

TEST(Utf8, TellsCharactersFromFragments) {
  struct Case {
    std::string text;
    Utf8Status status;
    int length;
    uint32_t code_point;
  };
  const Case cases[] = {
      {std::string("\0", 1), Utf8Status::kComplete, 1, 0},
      {"a", Utf8Status::kComplete, 1, 'a'},
      {"\xC3\xA9", Utf8Status::kComplete, 2, 0xE9},
      {"\xE4\xB8\xAD.", Utf8Status::kComplete, 3, 0x4E2D},
      {"\xF0\x9F\x99\x82", Utf8Status::kComplete, 4, 0x1F642},
      {"\xF4\x8F\xBF\xBF", Utf8Status::kComplete, 4, 0x10FFFF},
      {"\x80", Utf8Status::kInvalid, 1, 0},              // continuation alone
      {"\xC0\x80", Utf8Status::kInvalid, 1, 0},          // overlong
      {"\xE0\x80\x80", Utf8Status::kInvalid, 1, 0},      // overlong
      {"\xED\xA0\x80", Utf8Status::kInvalid, 1, 0},      // surrogate
      {"\xF4\x90\x80\x80", Utf8Status::kInvalid, 1, 0},  // past the end of Unicode
      {"\xF5\x80\x80\x80", Utf8Status::kInvalid, 1, 0},
      {"\xE4\xB8x", Utf8Status::kInvalid, 2, 0},  // broken off by another character
      {"\xF0\x9F\x99x", Utf8Status::kInvalid, 3, 0},
      {"\xE4", Utf8Status::kIncomplete, 1, 0},
      {"\xF0\x9F\x99", Utf8Status::kIncomplete, 3, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.text));
    const Utf8Char found = ScanUtf8(c.text);
    EXPECT_EQ(found.status, c.status);
    EXPECT_EQ(found.length, c.length);
    EXPECT_EQ(found.code_point, c.code_point);
  }
}

TEST(Utf8, AgreesWithUtf8proc) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    std::string text(4, '\0');
    // Mostly bytes that begin or continue characters.
    for (char& byte : text)
      byte = static_cast<char>(random() % 2 ? random() : 0x80 + random() % 64);
    utf8proc_int32_t code_point = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                         static_cast<utf8proc_ssize_t>(text.size()), &code_point);
    const Utf8Char found = ScanUtf8(text);
    ASSERT_EQ(found.status == Utf8Status::kComplete, length > 0) << testing::PrintToString(text);
    if (length > 0) {
      ASSERT_EQ(found.length, length);
      ASSERT_EQ(found.code_point, static_cast<uint32_t>(code_point));
    }
  }
}

TEST(Utf8, FindsTheValidPrefix) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
  EXPECT_EQ(ValidUtf8Prefix("plain text, longer than a word"), 30u);
  EXPECT_EQ(ValidUtf8Prefix("12345678\xC3\xA9\xFFx"), 10u);
  EXPECT_EQ(ValidUtf8Prefix("1234567\xC3"), 7u);
}

TEST(Utf8, CutsBetweenCharacters) {
  EXPECT_EQ(Utf8Cut("abcdef", 4), 4u);
  EXPECT_EQ(Utf8Cut("abc", 4), 3u);
  EXPECT_EQ(Utf8Cut("ab\xE4\xB8\xAD", 4), 2u);
  EXPECT_EQ(Utf8Cut("\xF0\x9F\x99\x82z", 4), 4u);
  EXPECT_GE(Utf8Cut("\x80\x80\x80\x80\x80\x80", 4), 1u);  // no progress would be endless
}

}  // namespace
}  // namespace hearth
