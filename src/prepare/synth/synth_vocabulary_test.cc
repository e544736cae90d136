#include "prepare/synth/synth_vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepare/shapes/shapes.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

GgufMetadata VocabularyOf(int64_t size) {
  GgufMetadata metadata("test");
  AddSyntheticVocabulary(size, &metadata);
  return metadata;
}

TEST(SynthVocabularyTest, HasTheSizeAskedAndNoTextTwice) {
  for (const int64_t size : {kMinVocabSize, int64_t{288}, int64_t{355}, int64_t{420}, int64_t{600},
                             int64_t{32000}, int64_t{151936}}) {
    const GgufMetadata metadata = VocabularyOf(size);
    const std::vector<std::string>& texts = *metadata.FindStrings("tokenizer.ggml.tokens");
    EXPECT_EQ(texts.size(), static_cast<size_t>(size));
    EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size()) << size;
    EXPECT_EQ(metadata.FindFloats("tokenizer.ggml.scores")->size(), texts.size());
    EXPECT_EQ(metadata.FindInts("tokenizer.ggml.token_type")->size(), texts.size());
  }
}

TEST(SynthVocabularyTest, SmallerIsAPrefixOfLarger) {
  const GgufMetadata small = VocabularyOf(500), large = VocabularyOf(5000);
  const auto& a = *small.FindStrings("tokenizer.ggml.tokens");
  const auto& b = *large.FindStrings("tokenizer.ggml.tokens");
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
}

TEST(SynthVocabularyTest, IsATokenizer) {
  const auto tokenizer = Tokenizer::FromGguf(VocabularyOf(32000));
  EXPECT_EQ(tokenizer->kind(), "llama");
  EXPECT_EQ(tokenizer->special().unk, 0);
  EXPECT_EQ(tokenizer->special().bos, 1);
  EXPECT_EQ(tokenizer->special().eos, 2);
  EXPECT_TRUE(tokenizer->special().add_bos);
  EXPECT_EQ(tokenizer->type(0), TokenType::kUnknown);
  EXPECT_EQ(tokenizer->type(1), TokenType::kControl);
  EXPECT_EQ(tokenizer->type(3), TokenType::kByte);
  EXPECT_EQ(tokenizer->VocabularyText(3 + 0x0a), "<0x0A>");
  EXPECT_EQ(tokenizer->type(259), TokenType::kNormal);
}

TEST(SynthVocabularyTest, AnyTextComesBack) {
  const std::string texts[] = {"Hello, world!", "the knight and the kobira", "tabs\tand\nlines",
                               "gr\xC3\xBC\xC3\x9F dich \xF0\x9F\x94\xA5", "0123456789 {}[]~^"};
  for (const int64_t size : {kMinVocabSize, int64_t{1000}, int64_t{32000}}) {
    const auto tokenizer = Tokenizer::FromGguf(VocabularyOf(size));
    for (const std::string& text : texts) {
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), " " + text) << size;
    }
  }
}

// No made-up word is dead weight: each one is what its own text is encoded as.
TEST(SynthVocabularyTest, MergingReachesEveryWord) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  const auto tokenizer = Tokenizer::FromGguf(VocabularyOf(20000));
  size_t tried = 0;
  for (TokenId id = 260; id < 20000; ++id) {
    const std::string& text = tokenizer->VocabularyText(id);
    // Encoding puts the word mark in front, so that only such pieces can stand alone.
    if (!text.starts_with(kMark)) continue;
    ++tried;
    EXPECT_EQ(tokenizer->Encode(text.substr(kMark.size())), std::vector<TokenId>{id}) << text;
  }
  EXPECT_GT(tried, 9000u);
}

}  // namespace
}  // namespace hearth
