// Markers that a file types as user-defined.
#include "text/tokenizer/markers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

TEST(Markers, RawTextNeverYieldsThoseOfAByteLevelVocabulary) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  builder.Add("<|turn|>", TokenType::kUserDefined).Add("[INST]", TokenType::kUserDefined);
  builder.Add("User:", TokenType::kUserDefined).Add("\u4F60\u597D", TokenType::kUserDefined);
  const TokenId last = builder.last_id();
  const auto tokenizer = Tokenizer::FromGguf(builder.Bpe());
  for (const TokenId marker : {last - 3, last - 2, last - 1}) {
    const std::string& text = tokenizer->VocabularyText(marker);
    EXPECT_THAT(tokenizer->Encode("a" + text + "b"), Not(Contains(marker)));
    EXPECT_THAT(tokenizer->Encode("a" + text + "b", {true}), Contains(marker));
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a" + text + "b")), "a" + text + "b");
  }
  // Words, white space and single characters open no turn.
  EXPECT_THAT(tokenizer->Encode("\u4F60\u597D"), ElementsAre(last));
  EXPECT_THAT(tokenizer->Encode("    "), ElementsAre(tokenizer->FindToken("    ")));
}

TEST(Markers, WhatSentencePieceItselfYieldsStaysText) {
  VocabularyBuilder builder = SmallSpmVocabulary();  // with <tool>, before the pieces
  builder.Add("<|turn|>", TokenType::kUserDefined);
  const TokenId added = builder.last_id();
  const auto tokenizer = Tokenizer::FromGguf(builder.Spm());
  const TokenId tool = tokenizer->FindToken("<tool>");
  EXPECT_THAT(tokenizer->Encode("the<tool>the"), Contains(tool));
  EXPECT_THAT(tokenizer->Encode("the<|turn|>the"), Not(Contains(added)));
  EXPECT_THAT(tokenizer->Encode("the<|turn|>the", {true}), Contains(added));
}

TEST(Markers, WhatATemplateWritesIsAMarker) {
  GgufMetadata metadata = SmallSpmVocabulary().Spm();
  metadata.SetString("tokenizer.chat_template", "{{ '<tool>' }}");
  const auto tokenizer = Tokenizer::FromGguf(metadata);
  const TokenId tool = tokenizer->FindToken("<tool>");
  EXPECT_THAT(tokenizer->Encode("the<tool>the"), Not(Contains(tool)));
  EXPECT_THAT(tokenizer->EncodeSegments({{"<tool>", true}, {"<tool>"}}), Contains(tool).Times(1));
}

TEST(Markers, AfterAddedOnesANewTextBegins) {
  VocabularyBuilder builder = SmallSpmVocabulary();
  builder.Add("<|turn|>", TokenType::kUserDefined);
  const TokenId added = builder.last_id();
  const auto tokenizer = Tokenizer::FromGguf(builder.Spm());
  const TokenId the = tokenizer->FindToken("\u2581the");
  EXPECT_THAT(tokenizer->Encode("the<|turn|>the", {true}), ElementsAre(the, added, the));
  // A marker of the vocabulary's own is part of the text.
  EXPECT_THAT(tokenizer->Encode("the<tool>the", {true}),
              ElementsAre(the, tokenizer->FindToken("<tool>"), tokenizer->FindToken("the")));
}

TEST(Markers, SpacesComeWhereTheFileSays) {
  const auto encode = [](const char* prefix, std::string_view text) {
    GgufMetadata metadata = SmallSpmVocabulary().Spm();
    metadata.SetString(kSpacePrefixKey, prefix);
    const auto tokenizer = Tokenizer::FromGguf(metadata);
    std::string pieces;
    for (const TokenId id : tokenizer->Encode(text, {true})) {
      pieces += tokenizer->VocabularyText(id) + "|";
    }
    return pieces;
  };
  EXPECT_EQ(encode("text", "the</s>the"), "\u2581the|</s>|\u2581the|");
  EXPECT_EQ(encode("text", " the"), "\u2581|\u2581the|");
  EXPECT_EQ(encode("word", "the</s>the"), "\u2581the|</s>|\u2581the|");
  EXPECT_EQ(encode("word", " the</s> the"), "\u2581the|</s>|\u2581the|");
  EXPECT_EQ(encode("first", "the</s>the"), "\u2581the|</s>|the|");
  EXPECT_EQ(encode("first", " the</s> the"), "\u2581the|</s>|\u2581the|");
  EXPECT_EQ(encode("first", "<s>the"), "<s>|the|");
  EXPECT_THROW(encode("last", "the"), Error);
}

}  // namespace
}  // namespace hearth
