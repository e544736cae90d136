#include "text/tokenizer/normal_form.h"

#include <gtest/gtest.h>

#include <string>

#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

TEST(NormalForm, ComposesLettersAndMarks) {
  EXPECT_EQ(ToNfc(""), "");
  EXPECT_EQ(ToNfc("plain text\n"), "plain text\n");
  EXPECT_EQ(ToNfc("cafe\u0301!"), "caf\u00E9!");
  EXPECT_EQ(ToNfc("Vie\u0323\u0302t Nam"), "Vi\u1EC7t Nam");
  EXPECT_EQ(ToNfc("Vie\u0302\u0323t Nam"), "Vi\u1EC7t Nam");
  EXPECT_EQ(ToNfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(ToNfc("\u304B\u3099"), "\u304C");
  EXPECT_EQ(ToNfc("\u212A\u2126\u212B"), "K\u03A9\u00C5");
  // Some letters stay apart, and marks are put in order.
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C");
  EXPECT_EQ(ToNfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(ToNfc("\u4E2D\u0301\uFF01"), "\u4E2D\u0301\uFF01");
}

TEST(NormalForm, KeepsWhatIsNoText) {
  EXPECT_EQ(ToNfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(ToNfc("e\u0301\xC3"), "\u00E9\xC3");
  EXPECT_EQ(ToNfc(std::string("\0e\u0301\0", 5)), std::string("\0\u00E9\0", 4));
}

// Sorting by neighbours would take hours.
TEST(NormalForm, TakesEndlessMarks) {
  std::string marks = "a", sorted = "\u1EA1";
  for (int i = 0; i < 300'000; ++i) marks += "\u0307\u0323";
  for (int i = 1; i < 300'000; ++i) sorted += "\u0323";
  for (int i = 0; i < 300'000; ++i) sorted += "\u0307";
  EXPECT_TRUE(ToNfc(marks).size() == sorted.size());
  const std::string letters(1'000'000, 'a');
  EXPECT_TRUE(ToNfc(letters) == letters);
}

TEST(NormalForm, IsWhatSomeFilesAskFor) {
  VocabularyBuilder builder = SmallBpeVocabulary();  // has U+00E9 as one token
  const auto count = [](const GgufMetadata& metadata) {
    return Tokenizer::FromGguf(metadata)->Encode("e\u0301").size();
  };
  EXPECT_EQ(count(builder.Bpe("gpt-2")), 3u);
  EXPECT_EQ(count(builder.Bpe("qwen2")), 1u);
  GgufMetadata metadata = builder.Bpe("gpt-2");
  metadata.SetString("hearth.tokenizer.normalizer", "NFC");
  EXPECT_EQ(count(metadata), 1u);
  metadata = builder.Bpe("qwen2");
  metadata.SetString("hearth.tokenizer.normalizer", "none");
  EXPECT_EQ(count(metadata), 3u);
  metadata = SmallSpmVocabulary().Spm();
  metadata.SetString("hearth.tokenizer.normalizer", "NFC");
  const auto spm = Tokenizer::FromGguf(metadata);
  EXPECT_EQ(spm->Encode("e\u0301t"), spm->Encode("\u00E9t"));
}

}  // namespace
}  // namespace hearth
