// Vocabularies of model folders: whatever text comes, the tokens are those of the GGUF model.
#include "import/hugging_face_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "format/gguf_view.h"
#include "import/sentencepiece_model.h"
#include "import/test_model_folder.h"
#include "text/tokenizer/byte_letters.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ModelFolderTest, SentencePieceVocabulariesTokenizeAlike) {
  const GgufFile stories = GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf"));
  const GgufFile opened = Publish(stories, "bamboo");
  const auto expected = Tokenizer::FromGguf(stories.metadata());
  const auto found = Tokenizer::FromGguf(opened.metadata());
  EXPECT_EQ(found->vocab_size(), expected->vocab_size());
  EXPECT_EQ(found->special().bos, expected->special().bos);
  EXPECT_EQ(found->special().add_bos, expected->special().add_bos);
  const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
  ASSERT_GT(text.size(), 1000u);
  EXPECT_EQ(found->Encode(text), expected->Encode(text));
  EXPECT_EQ(found->Encode("  \xc3\xa9\xf0\x9f\x98\x80 x\n\n"),
            expected->Encode("  \xc3\xa9\xf0\x9f\x98\x80 x\n\n"));
}

// Folders with nothing but a tokenizer.
class PublishedTokenizerTest : public ModelFolderTest {
 protected:
  std::unique_ptr<Tokenizer> Read(const Json& config = Json::object()) {
    metadata_ = GgufMetadata("test");
    SetPublishedTokenizer(folder_.Path(""), PublishedJson("config.json", config), &metadata_);
    return Tokenizer::FromGguf(metadata_);
  }

  std::string Refused() {
    try {
      Read();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      return error.what();
    }
    return "accepted";
  }

  // A small byte-level tokenizer; its own pre-tokenizer is GPT-2's.
  static Json ByteLevel() {
    Json vocabulary;
    for (int byte = 0; byte < 256; ++byte) {
      vocabulary[ByteLetter(static_cast<uint8_t>(byte))] = byte;
    }
    vocabulary["12"] = 256;
    vocabulary[ByteLetter(0xC3) + ByteLetter(0xA9)] = 257;
    // Lists of pairs of texts would be taken for objects.
    const Json merges =
        Json::array({Json::array({"1", "2"}), Json::array({ByteLetter(0xC3), ByteLetter(0xA9)})});
    return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
            {"added_tokens", Json::array()}};
  }

  // One with byte fallback.
  static Json WithBytes() {
    Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2},   {"\u2581", 3},
                       {"a", 4},     {"b", 5},   {"\u2581a", 6}};
    Json tokenizer = {{"model",
                       {{"type", "BPE"},
                        {"byte_fallback", true},
                        {"unk_token", "<unk>"},
                        {"vocab", vocabulary},
                        {"merges", Json::array({Json::array({"\u2581", "a"})})}}},
                      {"added_tokens", Json::array()}};
    for (int id = 0; id < 3; ++id) {
      const char* const texts[] = {"<unk>", "<s>", "</s>"};
      tokenizer["added_tokens"].push_back({{"id", id}, {"content", texts[id]}, {"special", true}});
    }
    return tokenizer;
  }

  GgufMetadata metadata_;
};

TEST_F(PublishedTokenizerTest, DoesTheStepsThatTheFileNames) {
  Json tokenizer = ByteLevel();
  Write("tokenizer.json", tokenizer);
  EXPECT_EQ(Read()->pre(), "gpt-2");
  EXPECT_THAT(Read()->Encode("12"), ElementsAre(256));
  EXPECT_EQ(Read()->Encode("e\u0301").size(), 3u);
  tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  Write("tokenizer.json", tokenizer);
  EXPECT_THAT(Read()->Encode("e\u0301"), ElementsAre(257));
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}}, tokenizer["pre_tokenizer"]}}};
  Write("tokenizer.json", tokenizer);
  EXPECT_THAT(Read()->Encode("12"), ElementsAre('1', '2'));
}

TEST_F(PublishedTokenizerTest, RefusesByNameWhatItDoesNotDo) {
  for (const char* type : {"Lowercase", "NFKC", "Strip", "Replace"}) {
    Json tokenizer = ByteLevel();
    tokenizer["normalizer"] = {{"type", type}};
    Write("tokenizer.json", tokenizer);
    EXPECT_THAT(Refused(), AllOf(HasSubstr("normalizer"), HasSubstr(type)));
  }
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    Json tokenizer = ByteLevel();
    tokenizer["added_tokens"] = {{{"id", 258}, {"content", "<x>"}, {flag, true}}};
    Write("tokenizer.json", tokenizer);
    EXPECT_THAT(Refused(), AllOf(HasSubstr("<x>"), HasSubstr(flag)));
  }
  Json tokenizer = ByteLevel();
  tokenizer["pre_tokenizer"]["add_prefix_space"] = true;
  Write("tokenizer.json", tokenizer);
  EXPECT_THAT(Refused(), HasSubstr("add_prefix_space"));
  tokenizer = WithBytes();
  tokenizer["pre_tokenizer"] = {{"type", "Punctuation"}};
  Write("tokenizer.json", tokenizer);
  EXPECT_THAT(Refused(), HasSubstr("Punctuation"));
}

TEST_F(PublishedTokenizerTest, PutsSpacesWhereTheSchemeSays) {
  const auto encode = [&](const Json& scheme, const char* text) {
    Json tokenizer = WithBytes();
    if (scheme.is_null()) {
      tokenizer["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
    } else {
      tokenizer["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", scheme}};
    }
    Write("tokenizer.json", tokenizer);
    return Read()->Encode(text, {true});
  };
  EXPECT_THAT(encode(nullptr, " a</s>a"), ElementsAre(3, 6, 2, 6));
  EXPECT_THAT(encode("always", " a</s>a"), ElementsAre(6, 2, 6));
  EXPECT_THAT(encode("first", " a</s>a"), ElementsAre(6, 2, 4));
  EXPECT_THAT(encode("first", "a</s>a"), ElementsAre(6, 2, 4));
  EXPECT_THAT(encode("never", "a</s>a"), ElementsAre(4, 2, 4));
}

TEST_F(PublishedTokenizerTest, EndsTextsToBeEmbeddedAsTheFolderDoes) {
  const auto end = [&](const std::vector<std::string>& after, const Json& settings) {
    Json tokenizer = WithBytes();
    Json pieces = Json::array({Json::object({{"Sequence", {{"id", "A"}}}})});
    for (const std::string& text : after) {
      pieces.push_back(Json::object({{"SpecialToken", {{"id", text}}}}));
    }
    const Json post = {{"type", "TemplateProcessing"}, {"single", pieces}};
    tokenizer["post_processor"] = {{"type", "Sequence"}, {"processors", Json::array({post})}};
    Write("tokenizer.json", tokenizer);
    Json named = settings;
    named["eos_token"] = "</s>";
    Write("tokenizer_config.json", named);
    const auto found = Read();
    EXPECT_FALSE(found->special().add_bos);
    return found->special().embedding_end;
  };
  EXPECT_THAT(end({}, Json::object()), ElementsAre());
  EXPECT_THAT(end({"</s>"}, Json::object()), ElementsAre(2));
  EXPECT_TRUE(metadata_.FindBool("tokenizer.ggml.add_eos_token").value_or(false));
  EXPECT_THAT(end({"<s>"}, Json::object()), ElementsAre(1)) << "which is not EOS";
  EXPECT_FALSE(metadata_.FindBool("tokenizer.ggml.add_eos_token").value_or(true));
  EXPECT_THAT(end({"</s>", "<unk>"}, Json::object()), ElementsAre(2, 0));
  EXPECT_THAT(end({"<s>"}, {{"add_eos_token", false}}), ElementsAre());
  EXPECT_THAT(end({}, {{"add_eos_token", true}}), ElementsAre(2));
  EXPECT_THROW(end({"<nothing>"}, Json::object()), Error);
}

TEST_F(PublishedTokenizerTest, KnowsEveryEnd) {
  Json tokenizer = ByteLevel();
  for (int id = 258; id < 263; ++id) {
    tokenizer["added_tokens"].push_back(
        {{"id", id}, {"content", "<t" + std::to_string(id) + ">"}, {"special", true}});
  }
  Write("tokenizer.json", tokenizer);
  Write("tokenizer_config.json", {{"eos_token", "<t258>"}});
  Write("generation_config.json", {{"eos_token_id", {258, 261}}});
  Json config = Json::object();
  config["eos_token_id"] = Json::array({259u, 260u});
  const auto found = Read(config);
  EXPECT_EQ(found->special().eos, 258);
  for (int id = 258; id < 262; ++id) EXPECT_TRUE(found->IsEndOfGeneration(id)) << id;
  EXPECT_FALSE(found->IsEndOfGeneration(262));
}

// Added tokens that are not special are markers all the same.
TEST_F(PublishedTokenizerTest, RawTextYieldsNoAddedToken) {
  Json tokenizer = ByteLevel();
  tokenizer["added_tokens"] = {{{"id", 258}, {"content", "<tool_call>"}, {"special", false}}};
  Write("tokenizer.json", tokenizer);
  EXPECT_EQ(Read()->Encode("<tool_call>").size(), 11u);
  EXPECT_THAT(Read()->Encode("<tool_call>", {true}), ElementsAre(258));
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
  return bytes + static_cast<char>(value);
}
std::string NumberField(uint64_t number, uint64_t value) {
  return Varint(number << 3) + Varint(value);
}
std::string BytesField(uint64_t number, const std::string& bytes) {
  return Varint(number << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Piece(const std::string& text, float score, int type) {
  std::string bits(sizeof(score), '\0');
  std::memcpy(bits.data(), &score, sizeof(score));
  return BytesField(1, BytesField(1, text) + Varint(2 << 3 | 5) + bits + NumberField(3, type));
}
// Pieces, a BPE trainer, and a normalizer that leaves texts as they are.
std::string SmallSentencePiece() {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("\u2581", -2, 1) +
         Piece("a", -3, 1) + Piece("b", -4, 1) + Piece("\u2581a", -1, 1) +
         BytesField(2, NumberField(3, 2)) +
         BytesField(3, BytesField(1, "identity") + NumberField(4, 0));
}

TEST_F(PublishedTokenizerTest, ReadsASentencePieceModel) {
  std::ofstream(folder_.Path("tokenizer.model"), std::ios::binary) << SmallSentencePiece();
  Write("added_tokens.json", {{"<x>", 7}});
  Write("tokenizer_config.json",
        {{"added_tokens_decoder", {{"8", {{"content", "<|im_end|>"}, {"special", true}}}}}});
  const auto found = Read();
  EXPECT_EQ(found->vocab_size(), 9u);
  EXPECT_EQ(found->special().bos, 1);
  EXPECT_TRUE(found->special().add_bos);
  EXPECT_THAT(found->Encode("a b"), ElementsAre(6, 3, 5));
  EXPECT_THAT(found->Encode("a<|im_end|>a", {true}), ElementsAre(6, 8, 6));
  EXPECT_TRUE(found->IsEndOfGeneration(8));
  EXPECT_EQ(found->type(7), TokenType::kUserDefined);
}

TEST(SentencePieceModels, AreRefusedByName) {
  const auto refusal = [](const std::string& bytes) -> std::string {
    try {
      ParseSentencePieceModel(bytes, "tokenizer.model");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string whole = SmallSentencePiece();
  EXPECT_EQ(refusal(whole), "accepted");
  EXPECT_THAT(refusal(whole + BytesField(2, NumberField(3, 1))), HasSubstr("Unigram"));
  EXPECT_THAT(refusal(whole + BytesField(3, BytesField(1, "nmt_nfkc") + BytesField(2, "map"))),
              HasSubstr("nmt_nfkc"));
  EXPECT_THAT(refusal(whole + BytesField(3, NumberField(4, 1))),
              HasSubstr("remove_extra_whitespaces"));
  EXPECT_THAT(refusal(whole + BytesField(2, NumberField(3, 2) + NumberField(24, 1))),
              HasSubstr("treat_whitespace_as_suffix"));
  // Cut anywhere, it is refused or lacks a part that is asked for.
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << size;
  }
  EXPECT_THAT(refusal(std::string(20, '\xFF')), HasSubstr("SentencePiece"));
}

}  // namespace
}  // namespace hearth
