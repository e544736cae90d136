// Vocabularies that contradict themselves.
#include "text/tokenizer/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// The refusal's message, or "accepted".
std::string Refusal(const GgufMetadata& metadata, ErrorCode code = ErrorCode::kCorrupt) {
  try {
    Tokenizer::FromGguf(metadata);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

GgufMetadata Without(const GgufMetadata& metadata, const std::string& missing) {
  GgufMetadata rest(metadata.file_name());
  for (const auto& [key, value] : metadata.values()) {
    if (key != missing) rest.Set(key, value);
  }
  return rest;
}

GgufMetadata Spm() { return SmallSpmVocabulary().Spm(); }
GgufMetadata Bpe() { return SmallBpeVocabulary().Bpe(); }

TEST(Vocabulary, NamesWhatIsMissing) {
  EXPECT_THAT(Refusal(Without(Spm(), "tokenizer.ggml.tokens")),
              AllOf(HasSubstr("test.gguf"), HasSubstr("tokenizer.ggml.tokens")));
  EXPECT_THAT(Refusal(Without(Spm(), "tokenizer.ggml.model")), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(Refusal(Without(Bpe(), "tokenizer.ggml.merges")), HasSubstr("tokenizer.ggml.merges"));
  EXPECT_THAT(Refusal(GgufMetadata()), HasSubstr("tokenizer.ggml.model"));
}

TEST(Vocabulary, RefusesAnotherModelByName) {
  GgufMetadata metadata = Spm();
  metadata.SetString("tokenizer.ggml.model", "bert");
  EXPECT_THAT(Refusal(metadata, ErrorCode::kUnsupported),
              AllOf(HasSubstr("bert"), HasSubstr("gpt2")));
}

TEST(Vocabulary, RefusesArraysOfTheWrongLengthOrType) {
  for (const GgufMetadata& good : {Spm(), Bpe()}) {
    GgufMetadata metadata = good;
    metadata.SetStrings("tokenizer.ggml.tokens", {});
    EXPECT_THAT(Refusal(metadata), HasSubstr("at least one token"));
    metadata = good;
    metadata.SetInt32s("tokenizer.ggml.tokens", {1, 2});
    EXPECT_NE(Refusal(metadata), "accepted");
    metadata = good;
    metadata.SetInt32s("tokenizer.ggml.token_type", {1, 1});
    EXPECT_THAT(Refusal(metadata), HasSubstr("one per token"));
  }
  GgufMetadata metadata = Spm();
  metadata.SetFloat32s("tokenizer.ggml.scores", {1.0f});
  EXPECT_THAT(Refusal(metadata), HasSubstr("one per token"));
}

TEST(Vocabulary, RefusesTypesThatDoNotExist) {
  for (const int type : {-1, 7, 255, 257, std::numeric_limits<int>::max()}) {
    VocabularyBuilder builder = SmallBpeVocabulary();
    builder.Add("x", static_cast<TokenType>(0));
    GgufMetadata metadata = builder.Bpe();
    std::vector<int32_t> types(static_cast<size_t>(builder.last_id()) + 1, 1);
    types.back() = type;
    metadata.SetInt32s("tokenizer.ggml.token_type", types);
    EXPECT_THAT(Refusal(metadata), HasSubstr("types from 1 to 6")) << type;
  }
}

TEST(Vocabulary, RefusesScoresThatAreNoNumbers) {
  VocabularyBuilder builder = SmallSpmVocabulary();
  builder.Add("x", TokenType::kNormal, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(Refusal(builder.Spm()), HasSubstr("NaN"));
}

TEST(Vocabulary, OrdersInfiniteScores) {
  VocabularyBuilder builder = SmallSpmVocabulary();
  const float infinity = std::numeric_limits<float>::infinity();
  builder.Add("ea", TokenType::kNormal, infinity).Add("hea", TokenType::kNormal, -infinity);
  EXPECT_EQ(Refusal(builder.Spm()), "accepted");
}

TEST(Vocabulary, RefusesByteTokensThatNameNoByte) {
  for (const char* text : {"<0xGG>", "<0x1>", "", "x", "<0x0A> "}) {
    VocabularyBuilder builder = SmallSpmVocabulary();
    builder.Add(text, TokenType::kByte);
    EXPECT_THAT(Refusal(builder.Spm()), HasSubstr("byte token")) << text;
  }
}

TEST(Vocabulary, ReadsBytes) {
  EXPECT_EQ(ByteTokenValue("<0x00>"), 0);
  EXPECT_EQ(ByteTokenValue("<0xfF>"), 255);
  EXPECT_EQ(ByteTokenValue("<0xF>"), -1);
  EXPECT_EQ(ByteTokenValue("<0x-1>"), -1);
}

TEST(Vocabulary, RefusesMergesOfNothing) {
  for (const char* merge : {"", " ", "a", "a ", " a", "a zz", "zz a", "e h", "a b c", "a  b"}) {
    GgufMetadata metadata = Bpe();
    metadata.SetStrings("tokenizer.ggml.merges", {"h e", merge});
    EXPECT_THAT(Refusal(metadata), AllOf(HasSubstr("tokenizer.ggml.merges"), HasSubstr("entry 1")))
        << merge;
  }
}

TEST(Vocabulary, MergesDoNotReachSpecialTokens) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  builder.AddMerge("x", "y").Add("xyz", TokenType::kControl);
  GgufMetadata metadata = builder.Bpe();
  metadata.SetStrings("tokenizer.ggml.merges", {"x y", "xy z"});
  const auto tokenizer = Tokenizer::FromGguf(metadata);
  EXPECT_EQ(tokenizer->Encode("xyz").size(), 2u);
}

TEST(Vocabulary, WarnsOfSpecialIdsOutOfRange) {
  for (const char* key : {"bos", "eos", "eot", "unknown"}) {
    GgufMetadata metadata = Spm();
    const std::string name = std::string("tokenizer.ggml.") + key + "_token_id";
    metadata.SetUint32(name, 1'000'000);
    const auto tokenizer = Tokenizer::FromGguf(metadata);
    EXPECT_THAT(tokenizer->warnings(),
                ElementsAre(AllOf(HasSubstr("test.gguf"), HasSubstr(name), HasSubstr("1000000"))));
    // As if the key were not there.
    EXPECT_EQ(tokenizer->special().bos, 1);
    EXPECT_EQ(tokenizer->special().eos, 2);
    metadata.SetInt32(name, -2);
    EXPECT_THAT(Refusal(metadata), HasSubstr(name));
    // How writers say "none".
    metadata.SetUint32(name, std::numeric_limits<uint32_t>::max());
    EXPECT_EQ(Refusal(metadata), "accepted");
    metadata.SetInt32(name, -1);
    EXPECT_TRUE(Tokenizer::FromGguf(metadata)->warnings().empty());
  }
}

// Pieces were appended in the order of their merges.
TEST(Vocabulary, WithoutScoresTheOrderCounts) {
  VocabularyBuilder builder;
  builder.Add(kTestSpaceMark).Add("a").Add("b").Add("c").Add("ab").Add("bc").Add("abc");
  GgufMetadata metadata = Without(builder.Spm(), "tokenizer.ggml.scores");
  metadata.SetBool("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = Tokenizer::FromGguf(metadata);
  EXPECT_THAT(tokenizer->Encode("abc"), ElementsAre(6));
  EXPECT_THAT(tokenizer->Encode("abbc"), ElementsAre(4, 5));
  EXPECT_THAT(tokenizer->warnings(), ElementsAre(HasSubstr("tokenizer.ggml.scores")));
}

TEST(Vocabulary, EveryEndThatTheFileNamesEndsAnswers) {
  VocabularyBuilder builder = SmallSpmVocabulary();
  std::vector<TokenId> ids;
  for (const char* text : {"<x1>", "<x2>", "<x3>", "<x4>", "<x5>", "<x6>"}) {
    builder.Add(text, TokenType::kControl);
    ids.push_back(builder.last_id());
  }
  GgufMetadata metadata = builder.Spm();
  metadata.SetInt32s("tokenizer.ggml.eos_token_id", {ids[0], ids[1]});
  metadata.SetInt32s("tokenizer.ggml.eos_token_ids", {2, ids[2]});
  metadata.SetUint32("tokenizer.ggml.eom_token_id", static_cast<uint32_t>(ids[3]));
  metadata.SetUint32("tokenizer.ggml.fim_pad_token_id", static_cast<uint32_t>(ids[4]));
  const auto tokenizer = Tokenizer::FromGguf(metadata);
  EXPECT_EQ(tokenizer->special().eos, ids[0]);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(tokenizer->IsEndOfGeneration(ids[i])) << i;
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(2));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(ids[5]));
  EXPECT_TRUE(tokenizer->warnings().empty());
}

TEST(Vocabulary, EndMarkersThatAreTypedNormalAreControl) {
  for (const char* text : {"<|im_end|>", "<|fim_pad|>", "<|file_sep|>", "<|endoftext|>"}) {
    VocabularyBuilder builder;
    builder.Add("a").Add(text);
    const auto tokenizer = Tokenizer::FromGguf(builder.Bpe());
    EXPECT_TRUE(tokenizer->IsEndOfGeneration(1)) << text;
    EXPECT_EQ(tokenizer->type(1), TokenType::kControl) << text;
    EXPECT_EQ(tokenizer->TokenBytes(1), "") << text;
  }
}

// Harmony's "<|end|>" ends a message, and another follows.
TEST(Vocabulary, HarmonyEndsAnswersWithReturn) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  builder.Add("<|end|>", TokenType::kControl);
  const TokenId end = builder.last_id();
  EXPECT_TRUE(Tokenizer::FromGguf(builder.Bpe())->IsEndOfGeneration(end));
  builder.Add("<|return|>", TokenType::kControl).Add("<|call|>", TokenType::kControl);
  const auto harmony = Tokenizer::FromGguf(builder.Bpe());
  EXPECT_FALSE(harmony->IsEndOfGeneration(end));
  EXPECT_TRUE(harmony->IsEndOfGeneration(end + 1));
  EXPECT_TRUE(harmony->IsEndOfGeneration(end + 2));
  EXPECT_EQ(harmony->special().eot, end + 1);
}

TEST(Vocabulary, SaysWhenItIsSplitAsGpt2) {
  EXPECT_TRUE(Tokenizer::FromGguf(Bpe())->warnings().empty());
  for (const GgufMetadata& metadata :
       {Without(Bpe(), "tokenizer.ggml.pre"), SmallBpeVocabulary().Bpe("default")}) {
    EXPECT_THAT(Tokenizer::FromGguf(metadata)->warnings(),
                ElementsAre(HasSubstr("tokenizer.ggml.pre")));
  }
}

TEST(Vocabulary, BosIsAddedWhereThereIsOne) {
  GgufMetadata metadata = Bpe();
  metadata.SetBool("tokenizer.ggml.add_bos_token", true);
  const auto without = Tokenizer::FromGguf(metadata);
  EXPECT_FALSE(without->special().add_bos);
  EXPECT_THAT(without->WithBos({7}), ElementsAre(7));
  const auto llama = Tokenizer::FromGguf(Spm());
  EXPECT_TRUE(llama->special().add_bos);
  EXPECT_THAT(llama->WithBos({7}), ElementsAre(llama->special().bos, 7));
  EXPECT_THAT(llama->WithBos({}), ElementsAre(llama->special().bos));
}

TEST(Vocabulary, ToleratesEmptyAndRepeatedTokens) {
  VocabularyBuilder spm = SmallSpmVocabulary();
  spm.Add("").Add("the", TokenType::kNormal, 9).Add("", TokenType::kUserDefined);
  spm.Add("", TokenType::kControl).Add("<0x41>", TokenType::kByte);
  const auto llama = Tokenizer::FromGguf(spm.Spm());
  EXPECT_LT(llama->FindToken("the"), spm.last_id() - 4);
  EXPECT_EQ(llama->Decode(llama->Encode("the cat A", {true})), " the cat A");

  VocabularyBuilder bpe = SmallBpeVocabulary();
  bpe.Add("").Add("he").Add("", TokenType::kUserDefined).Add("", TokenType::kControl);
  const auto gpt2 = Tokenizer::FromGguf(bpe.Bpe());
  EXPECT_EQ(gpt2->FindToken("he"), 256);
  EXPECT_EQ(gpt2->Decode(gpt2->Encode("the cat", {true})), "the cat");
}

TEST(Vocabulary, GuessesMissingTypes) {
  const auto llama =
      Tokenizer::FromGguf(Without(SmallSpmVocabulary().Spm(), "tokenizer.ggml.token_type"));
  EXPECT_EQ(llama->type(0), TokenType::kUnknown);
  EXPECT_EQ(llama->type(1), TokenType::kControl);
  EXPECT_EQ(llama->type(3), TokenType::kByte);
  EXPECT_THAT(llama->Encode("the"), ElementsAre(llama->FindToken("\u2581the")));
  const auto gpt2 = Tokenizer::FromGguf(Without(Bpe(), "tokenizer.ggml.token_type"));
  EXPECT_EQ(gpt2->Encode("hello").size(), 1u);
}

TEST(Vocabulary, EndTokensAreMarkersOnly) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  builder.Add("<|end|>", TokenType::kControl)
      .Add("<end_of_turn>", TokenType::kUserDefined)
      .Add("</s>", TokenType::kNormal);
  const auto tokenizer = Tokenizer::FromGguf(builder.Bpe());
  const TokenId last = builder.last_id();
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(last - 2));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(last - 1));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(last));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(last + 1));
}

}  // namespace
}  // namespace hearth
