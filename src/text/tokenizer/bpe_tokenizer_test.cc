#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/error.h"
#include "text/tokenizer/test_vocabularies.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Texts(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> texts;
  for (const TokenId id : ids) texts.push_back(tokenizer.VocabularyText(id));
  return texts;
}

class BpeTokenizerTest : public testing::Test {
 protected:
  std::vector<std::string> Encode(std::string_view text, bool parse_special = false) const {
    return Texts(*tokenizer_, tokenizer_->Encode(text, {parse_special}));
  }

  std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe());
  const std::string space_ = ByteLetter(' ');
};

TEST_F(BpeTokenizerTest, MergesByRankInsidePieces) {
  EXPECT_THAT(Encode("hello"), ElementsAre("hello"));
  EXPECT_THAT(Encode("hell"), ElementsAre("hell"));
  EXPECT_THAT(Encode("hel"), ElementsAre("he", "l"));
  EXPECT_THAT(Encode("hello w"), ElementsAre("hello", space_ + "w"));
  EXPECT_THAT(Encode("aaaaa"), ElementsAre("aaaa", "a"));
  EXPECT_THAT(Encode("a a"), ElementsAre("a", space_, "a"));
  EXPECT_THAT(Encode("\u00E9"), ElementsAre(ByteLetter(0xC3) + ByteLetter(0xA9)));
  EXPECT_THAT(Encode(""), IsEmpty());
}

TEST_F(BpeTokenizerTest, EncodesInvalidBytesAsBytes) {
  EXPECT_THAT(Encode("\xFFhello\xC3"), ElementsAre(ByteLetter(0xFF), "hello", ByteLetter(0xC3)));
  EXPECT_THAT(Encode(std::string(1, '\0')), ElementsAre(ByteLetter(0)));
}

TEST_F(BpeTokenizerTest, FindsSpecialTokens) {
  EXPECT_THAT(Encode("<|im_end|>", true), ElementsAre("<|im_end|>"));
  EXPECT_EQ(Encode("<|im_end|>").size(), 10u);
  EXPECT_THAT(Encode("     w"), ElementsAre("    ", space_ + "w"));
  EXPECT_THAT(Encode("       "), ElementsAre("    ", "   "));
  EXPECT_THAT(Encode("he<tool>he", true), ElementsAre("he", "<tool>", "he"));
  EXPECT_EQ(Encode("he<tool>he").size(), 8u);
  EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode("a<|im_end|>b<tool>", {true})), "ab<tool>");
}

TEST_F(BpeTokenizerTest, SegmentsAreOneText) {
  const auto ids = tokenizer_->EncodeSegments({{"<|im_start|>he", true}, {"llo<|im_end|>"}});
  EXPECT_EQ(Texts(*tokenizer_, ids)[1], "hello");
  EXPECT_EQ(ids.size(), 12u);
}

TEST_F(BpeTokenizerTest, KnowsItsSpecialTokens) {
  EXPECT_EQ(tokenizer_->kind(), "gpt2");
  EXPECT_EQ(tokenizer_->pre(), "gpt-2");
  EXPECT_EQ(tokenizer_->special().bos, -1);
  EXPECT_EQ(tokenizer_->special().eot, tokenizer_->FindToken("<|im_end|>"));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(tokenizer_->FindToken("<|endoftext|>")));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(tokenizer_->FindToken("<|im_start|>")));
}

TEST(BpeTokenizerFlags, AddBosWhereFileOrPreTokenizerSays) {
  const auto add_bos = [](const std::string& pre, int flag) {
    GgufMetadata metadata = SmallBpeVocabulary().Bpe(pre);
    metadata.SetUint32("tokenizer.ggml.bos_token_id", 3);
    if (flag >= 0) metadata.SetBool("tokenizer.ggml.add_bos_token", flag != 0);
    return Tokenizer::FromGguf(metadata)->special().add_bos;
  };
  EXPECT_FALSE(add_bos("gpt-2", -1));
  EXPECT_TRUE(add_bos("gpt-2", 1));
  EXPECT_TRUE(add_bos("llama-bpe", -1));
  EXPECT_FALSE(add_bos("llama-bpe", 0));
}

TEST(BpeTokenizerFlags, IgnoreMergesTakesWholePieces) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  builder.Add("xyz");  // reached by no merge
  const auto encode = [&builder](const std::string& pre) {
    const auto tokenizer = Tokenizer::FromGguf(builder.Bpe(pre));
    return Texts(*tokenizer, tokenizer->Encode("xyz"));
  };
  EXPECT_THAT(encode("llama-bpe"), ElementsAre("xyz"));
  EXPECT_THAT(encode("gpt-2"), ElementsAre("x", "y", "z"));
}

TEST(BpeTokenizerFlags, PreTokenizerMayBeMissingButNotUnknown) {
  GgufMetadata metadata = SmallBpeVocabulary().Bpe("default");
  EXPECT_EQ(Tokenizer::FromGguf(metadata)->Encode("hello").size(), 1u);
  metadata = GgufMetadata("test.gguf");
  const GgufMetadata with_pre = SmallBpeVocabulary().Bpe();
  for (const auto& [key, value] : with_pre.values()) {
    if (key != "tokenizer.ggml.pre") metadata.Set(key, value);
  }
  EXPECT_EQ(Tokenizer::FromGguf(metadata)->pre(), "");
  try {
    Tokenizer::FromGguf(SmallBpeVocabulary().Bpe("no-such-thing"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("no-such-thing"));
    EXPECT_THAT(error.what(), HasSubstr("llama-bpe"));
  }
}

// DeepSeek's user-defined "ø" is the character, not the byte that the letter spells.
TEST(BpeTokenizerLetters, UserDefinedTokensAreText) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  builder.Add("\u00F8", TokenType::kUserDefined);
  const auto tokenizer = Tokenizer::FromGguf(builder.Bpe());
  const TokenId id = builder.last_id();
  EXPECT_THAT(tokenizer->Encode("\u00F8"), ElementsAre(id));
  EXPECT_EQ(tokenizer->TokenBytes(id), "\u00F8");
}

TEST(BpeTokenizerLetters, BytesWithoutATokenAreUnknownOrLost) {
  VocabularyBuilder builder;
  builder.Add("a").Add("b");
  EXPECT_THAT(Tokenizer::FromGguf(builder.Bpe())->Encode("axb"), ElementsAre(0, 1));
  builder.Add("<unk>", TokenType::kUnknown);
  const auto tokenizer = Tokenizer::FromGguf(builder.Bpe());
  EXPECT_THAT(tokenizer->Encode("axb"), ElementsAre(0, 2, 1));
  EXPECT_EQ(tokenizer->TokenBytes(2), "<unk>");
}

TEST(BpeTokenizerRoundTrip, HoldsForRandomTextAndBytes) {
  std::mt19937 random(4);
  const std::string parts[] = {"h",    "e",      "llo",    " ",         "a",  "\xC3",
                               "\xA9", "\u00E9", "\xFF",   "\u4E2D",    "\n", "<tool>",
                               "'s",   "12",     "\u0301", "\U0001F642"};
  for (const std::string pre : {"gpt-2", "llama-bpe", "deepseek-llm", "tekken", "falcon"}) {
    const auto tokenizer = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe(pre));
    for (int i = 0; i < 5000; ++i) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n) text += parts[random() % std::size(parts)];
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
      for (char& byte : text) byte = static_cast<char>(random());
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    }
  }
}

TEST(BpeTokenizerRoundTrip, HoldsForHugeInputs) {
  const auto tokenizer = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe("gpt-4o"));
  std::mt19937 random(9);
  std::string noise(1'000'000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  for (const std::string& text :
       {std::string(1'000'000, 'a'), std::string(1'000'000, ' '), std::string(1'000'000, '\xE4'),
        std::string((size_t{1} << 24) + 100, 'h'), noise}) {
    EXPECT_TRUE(tokenizer->Decode(tokenizer->Encode(text)) == text);
  }
}

}  // namespace
}  // namespace hearth
