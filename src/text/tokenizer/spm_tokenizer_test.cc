#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/tokenizer/test_vocabularies.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The tokens as written in the vocabulary, U+2581 as "_".
std::vector<std::string> MarkedTexts(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> texts;
  for (const TokenId id : ids) {
    std::string text = tokenizer.VocabularyText(id);
    for (size_t at; (at = text.find(kTestSpaceMark)) != std::string::npos;) {
      text.replace(at, 3, "_");
    }
    texts.push_back(text);
  }
  return texts;
}

class SpmTokenizerTest : public testing::Test {
 protected:
  std::vector<std::string> Encode(std::string_view text, bool parse_special = false) const {
    return MarkedTexts(*tokenizer_, tokenizer_->Encode(text, {parse_special}));
  }

  std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::FromGguf(SmallSpmVocabulary().Spm());
};

TEST_F(SpmTokenizerTest, ReadsWhatTheFileSays) {
  EXPECT_EQ(tokenizer_->kind(), "llama");
  EXPECT_EQ(tokenizer_->special().bos, 1);
  EXPECT_EQ(tokenizer_->special().eos, 2);
  EXPECT_EQ(tokenizer_->special().unk, 0);
  EXPECT_EQ(tokenizer_->special().eot, tokenizer_->FindToken("<|im_end|>"));
  EXPECT_TRUE(tokenizer_->special().add_bos);
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(2));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(tokenizer_->FindToken("<|im_end|>")));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(1));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(-1));
}

TEST_F(SpmTokenizerTest, MergesByScore) {
  // "th" beats "he", and the pieces go on merging.
  EXPECT_THAT(Encode("the"), ElementsAre("_the"));
  EXPECT_THAT(Encode("he"), ElementsAre("_", "he"));
  EXPECT_THAT(Encode("the the"), ElementsAre("_the", "_the"));
}

TEST_F(SpmTokenizerTest, BreaksTiesFromTheLeft) {
  EXPECT_THAT(Encode("aba"), ElementsAre("_", "ab", "a"));
  EXPECT_THAT(Encode("bab"), ElementsAre("_", "ba", "b"));
}

TEST_F(SpmTokenizerTest, PrefixesASpace) {
  EXPECT_THAT(Encode(""), IsEmpty());
  EXPECT_THAT(Encode(" the"), ElementsAre("_", "_the"));
  EXPECT_THAT(Encode(" "), ElementsAre("__"));
  GgufMetadata metadata = SmallSpmVocabulary().Spm();
  metadata.SetBool("tokenizer.ggml.add_space_prefix", false);
  const auto plain = Tokenizer::FromGguf(metadata);
  EXPECT_THAT(MarkedTexts(*plain, plain->Encode("the")), ElementsAre("the"));
  EXPECT_THAT(MarkedTexts(*plain, plain->Encode(" the")), ElementsAre("_the"));
}

TEST_F(SpmTokenizerTest, DecodesWithoutTheSpaceThatItPuts) {
  for (const char* text : {"", "the", " the", "  ", "\xF0\x9F\x99\x82", "z the"}) {
    const std::vector<TokenId> ids = tokenizer_->Encode(text);
    EXPECT_EQ(DecodeText(*tokenizer_, ids), text);
    EXPECT_EQ(DecodeText(*tokenizer_, tokenizer_->WithBos(ids)), text);
  }
  GgufMetadata metadata = SmallSpmVocabulary().Spm();
  metadata.SetBool("tokenizer.ggml.add_space_prefix", false);
  const auto plain = Tokenizer::FromGguf(metadata);
  EXPECT_EQ(DecodeText(*plain, plain->Encode(" the")), " the");
}

TEST_F(SpmTokenizerTest, SpellsUnknownCharactersInBytes) {
  EXPECT_THAT(Encode("z"), ElementsAre("_", "<0x7A>"));
  EXPECT_THAT(Encode("\xF0\x9F\x99\x82"), ElementsAre("_", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>"));
  EXPECT_THAT(Encode("\xE4\xB8\xAD"), ElementsAre("_", "\xE4\xB8\xAD"));
  EXPECT_THAT(Encode("\xE4\xB8"), ElementsAre("_", "<0xE4>", "<0xB8>"));
  EXPECT_THAT(Encode(std::string("a\0b", 3)), ElementsAre("_", "a", "<0x00>", "b"));
  // A character that is no token by itself may be part of one.
  EXPECT_THAT(Encode("\xC3\xA9t"), ElementsAre("_", "\xC3\xA9t"));
  EXPECT_THAT(Encode("\xC3\xA9"), ElementsAre("_", "<0xC3>", "<0xA9>"));
}

TEST_F(SpmTokenizerTest, UserTextNeverBecomesASpecialToken) {
  for (const char* text : {"</s>", "<s>", "<unk>", "<0x41>", "<|im_end|>"}) {
    for (const TokenId id : tokenizer_->Encode(text)) {
      EXPECT_NE(tokenizer_->VocabularyText(id), text);
      EXPECT_NE(tokenizer_->type(id), TokenType::kControl);
    }
    EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text)), std::string(" ") + text);
  }
}

TEST_F(SpmTokenizerTest, ParsesSpecialTokensWhereAsked) {
  EXPECT_THAT(Encode("<|im_start|>the<|im_end|>", true),
              ElementsAre("<|im_start|>", "_the", "<|im_end|>"));
  EXPECT_THAT(Encode("<s><s>", true), ElementsAre("<s>", "<s>"));
  // A user-defined token always; the text around it stays one text.
  EXPECT_THAT(Encode("the<tool>the"), ElementsAre("_the", "<tool>", "the"));
  EXPECT_THAT(Encode("<tool>the"), ElementsAre("<tool>", "the"));
}

TEST_F(SpmTokenizerTest, SegmentsAreOneText) {
  const auto encode = [this](const std::vector<TextSegment>& segments) {
    return MarkedTexts(*tokenizer_, tokenizer_->EncodeSegments(segments));
  };
  EXPECT_THAT(encode({{"t"}, {"he"}, {" t"}, {"he"}}), ElementsAre("_the", "_the"));
  EXPECT_THAT(encode({{"<s>", true}, {"the"}, {"</s>", true}}), ElementsAre("<s>", "_the", "</s>"));
  EXPECT_THAT(encode({{"<", true}, {"s>"}}), ElementsAre("_", "<0x3C>", "<0x73>", "<0x3E>"));
  EXPECT_THAT(encode({}), IsEmpty());
}

TEST_F(SpmTokenizerTest, KnowsTheBytesOfTokens) {
  const auto bytes = [this](std::string_view text) {
    return tokenizer_->TokenBytes(tokenizer_->FindToken(text));
  };
  EXPECT_EQ(bytes(std::string(kTestSpaceMark) + "the"), " the");
  EXPECT_EQ(bytes("<0x0A>"), "\n");
  EXPECT_EQ(bytes("<s>"), "");
  EXPECT_EQ(bytes("<unk>"), "<unk>");
  EXPECT_EQ(bytes("<tool>"), "<tool>");
  EXPECT_EQ(tokenizer_->FindToken("no such token"), -1);
}

TEST(SpmTokenizerWithoutBytes, SaysUnknown) {
  VocabularyBuilder builder;
  builder.Add("<unk>", TokenType::kUnknown).Add(kTestSpaceMark).Add("a").Add("b");
  const auto tokenizer = Tokenizer::FromGguf(builder.Spm());
  EXPECT_THAT(tokenizer->Encode("axb"), ElementsAre(1, 2, 0, 3));
  // As in SentencePiece, a run of unknown characters is one unknown token.
  EXPECT_THAT(tokenizer->Encode("xyz"), ElementsAre(1, 0));
  EXPECT_THAT(tokenizer->Encode("a\xFFz a"), ElementsAre(1, 2, 0, 1, 2));
  EXPECT_EQ(tokenizer->Decode({2, 0}), "a<unk>");
}

TEST(SpmTokenizerWithoutBytes, DropsWhatNothingStandsFor) {
  VocabularyBuilder builder;
  builder.Add(kTestSpaceMark).Add("a");
  const auto tokenizer = Tokenizer::FromGguf(builder.Spm());
  EXPECT_EQ(tokenizer->special().bos, -1);
  EXPECT_FALSE(tokenizer->special().add_bos);
  EXPECT_THAT(tokenizer->Encode("xax"), ElementsAre(0, 1));
}

// Where a token has a space inside, words can not be merged one by one.
TEST(SpmTokenizerWithPhrases, MergesAcrossWords) {
  const std::string space = kTestSpaceMark;
  VocabularyBuilder builder = SmallSpmVocabulary();
  builder.Add("a" + space, TokenType::kNormal, -0.5f).Add("a" + space + "b", TokenType::kNormal, 0);
  const auto tokenizer = Tokenizer::FromGguf(builder.Spm());
  EXPECT_THAT(MarkedTexts(*tokenizer, tokenizer->Encode("a b")), ElementsAre("_", "a_b"));
}

TEST(SpmTokenizerRoundTrip, HoldsForRandomText) {
  const auto tokenizer = Tokenizer::FromGguf(SmallSpmVocabulary().Spm());
  std::mt19937 random(2);
  const std::string characters[] = {"t",  "h",        "e",        " ",        "a",
                                    "b",  "\xC3\xA9", "\xF0\x9F", "<tool>",   "\u4E2D",
                                    "\n", "\xFF",     "</s>",     "\xE2\x96", "<0x41>"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text += characters[random() % std::size(characters)];
    const std::string decoded = tokenizer->Decode(tokenizer->Encode(text));
    if (text.empty() || text.rfind("<tool>", 0) == 0) {
      ASSERT_EQ(decoded, text);
    } else {
      ASSERT_EQ(decoded, " " + text);
    }
  }
}

TEST(SpmTokenizerRoundTrip, HoldsForHugeInputs) {
  const auto tokenizer = Tokenizer::FromGguf(SmallSpmVocabulary().Spm());
  std::mt19937 random(9);
  std::string noise(1'000'000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random() & 0x7F);
  for (const std::string& text :
       {std::string(1'000'000, 'a'), std::string(1'000'000, ' '), std::string(1'000'000, '\xE4'),
        std::string((size_t{1} << 24) + 100, 'h'), noise}) {
    EXPECT_TRUE(tokenizer->Decode(tokenizer->Encode(text)) == " " + text);
  }
}

}  // namespace
}  // namespace hearth
