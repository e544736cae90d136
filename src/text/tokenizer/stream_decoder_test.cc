#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "text/tokenizer/test_vocabularies.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

class StreamDecoderTest : public testing::Test {
 protected:
  // Each byte as a token of its own; what each push yields, and last what Finish yields.
  std::vector<std::string> Stream(const std::string& bytes) const {
    StreamDecoder decoder(*tokenizer_);
    std::vector<std::string> parts;
    for (const char byte : bytes) parts.push_back(decoder.Push(static_cast<uint8_t>(byte)));
    parts.push_back(decoder.Finish());
    return parts;
  }

  std::string Joined(const std::string& bytes) const {
    std::string joined;
    for (const std::string& part : Stream(bytes)) joined += part;
    return joined;
  }

  // Token ids are the bytes.
  std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe());
};

using Parts = std::vector<std::string>;

TEST_F(StreamDecoderTest, HoldsBackIncompleteCharacters) {
  EXPECT_EQ(Stream("a\xC3\xA9"), (Parts{"a", "", "\xC3\xA9", ""}));
  EXPECT_EQ(Stream("\xF0\x9F\x99\x82z"), (Parts{"", "", "", "\xF0\x9F\x99\x82", "z", ""}));
}

TEST_F(StreamDecoderTest, ReplacesWhatCanNeverBecomeACharacter) {
  EXPECT_EQ(Stream("\xFFz"), (Parts{"\uFFFD", "z", ""}));
  EXPECT_EQ(Stream("\x80"), (Parts{"\uFFFD", ""}));
  EXPECT_EQ(Stream("\xE4\xB8z"), (Parts{"", "", "\uFFFDz", ""}));
  EXPECT_EQ(Stream("\xE4\xE4\xB8\xAD"), (Parts{"", "\uFFFD", "", "\u4E2D", ""}));
  EXPECT_EQ(Stream("\xED\xA0\x80"), (Parts{"", "\uFFFD\uFFFD", "\uFFFD", ""}));
}

TEST_F(StreamDecoderTest, FinishesAnIncompleteCharacter) {
  EXPECT_EQ(Stream("a\xF0\x9F"), (Parts{"a", "", "", "\uFFFD"}));
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Push('x'), "x");  // starts afresh
}

TEST_F(StreamDecoderTest, ControlTokensPrintNothing) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Push(tokenizer_->FindToken("<|im_end|>")), "");
  EXPECT_EQ(decoder.Push(0xA9), "\u00E9");
}

TEST_F(StreamDecoderTest, YieldsTheSameTextInWhateverPieces) {
  std::mt19937 random(6);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 20, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 3 ? 0x80 + random() % 128 : 'a');
    StreamDecoder decoder(*tokenizer_);
    std::string merged;
    for (const TokenId id : tokenizer_->Encode(bytes)) merged += decoder.Push(id);
    merged += decoder.Finish();
    ASSERT_EQ(merged, Joined(bytes));
  }
}

}  // namespace
}  // namespace hearth
