#include "text/tokenizer/byte_letters.h"

#include <gtest/gtest.h>

#include <set>

namespace hearth {
namespace {

TEST(ByteLetters, SpellEveryByteDifferently) {
  std::set<std::string> letters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string letter = ByteLetter(static_cast<uint8_t>(byte));
    EXPECT_TRUE(letters.insert(letter).second) << byte;
    EXPECT_EQ(LettersToBytes(letter), std::string(1, static_cast<char>(byte)));
  }
}

TEST(ByteLetters, AreGpt2s) {
  EXPECT_EQ(ByteLetter('A'), "A");
  EXPECT_EQ(ByteLetter(' '), "\u0120");
  EXPECT_EQ(ByteLetter('\n'), "\u010A");
  EXPECT_EQ(ByteLetter(0), "\u0100");
  EXPECT_EQ(ByteLetter(0xAD), "\u0143");  // the last that does not spell itself
  EXPECT_EQ(ByteLetter(0xFF), "\u00FF");
}

TEST(ByteLetters, RefuseOtherText) {
  EXPECT_EQ(LettersToBytes("a b"), std::nullopt);
  EXPECT_EQ(LettersToBytes("\u0144"), std::nullopt);
  EXPECT_EQ(LettersToBytes("\u4E2D"), std::nullopt);
  EXPECT_EQ(LettersToBytes("\xFF"), std::nullopt);
  EXPECT_EQ(LettersToBytes(""), "");
}

}  // namespace
}  // namespace hearth
