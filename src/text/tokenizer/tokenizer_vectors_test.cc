// Tokenizers of real models against ids that other programs computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/pretokenizers.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

struct Vector {
  std::string text;
  std::vector<TokenId> ids;
};

// `vocabulary`: the path of the vectors, without .inp and .out.
std::vector<Vector> ReadVectors(const std::string& vocabulary) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string input = ReadWholeFile(vocabulary + ".inp");
  std::istringstream output(ReadWholeFile(vocabulary + ".out"));
  std::vector<Vector> vectors;
  for (size_t begin = 0, end; (end = input.find(kSeparator, begin)) != std::string::npos;
       begin = end + kSeparator.size()) {
    Vector vector{input.substr(begin, end - begin), {}};
    std::string line;
    EXPECT_TRUE(std::getline(output, line)) << "fewer lines than texts";
    std::istringstream numbers(line);
    for (TokenId id; numbers >> id;) vector.ids.push_back(id);
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

std::vector<std::string> Vocabularies() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SharedPath("data/vocab"))) {
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::unique_ptr<Tokenizer> Open(const std::string& path) {
  return Tokenizer::FromGguf(GgufFile::Open(path).metadata());
}

TEST(TokenizerVectors, AllPass) {
  HEARTH_NEED_SHARED("data/vocab");
  size_t passed = 0;
  for (const std::string& path : Vocabularies()) {
    SCOPED_TRACE(path);
    const auto tokenizer = Open(path);
    const std::vector<Vector> vectors = ReadVectors(path);
    EXPECT_EQ(vectors.size(), 46u);
    for (const Vector& vector : vectors) {
      EXPECT_EQ(tokenizer->Encode(vector.text), vector.ids) << "'" << vector.text << "'";
      ++passed;
    }
  }
  EXPECT_GE(passed, 7u * 46u);
}

// Combining marks, scripts and normal forms, some for vocabularies of the folder above.
TEST(TokenizerVectors, NewerOnesPass) {
  HEARTH_NEED_SHARED("data/vocab/2026");
  size_t vocabularies = 0;
  size_t passed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedPath("data/vocab/2026"))) {
    if (entry.path().extension() != ".out") continue;
    const std::string vectors = entry.path().string().substr(0, entry.path().string().size() - 4);
    const std::string name = std::filesystem::path(vectors).filename();
    const std::string older = SharedPath("data/vocab/" + name);
    if (!std::filesystem::exists(vectors) && !std::filesystem::exists(older)) continue;
    SCOPED_TRACE(name);
    const auto tokenizer = Open(std::filesystem::exists(vectors) ? vectors : older);
    ++vocabularies;
    for (const Vector& vector : ReadVectors(vectors)) {
      EXPECT_EQ(tokenizer->Encode(vector.text), vector.ids) << "'" << vector.text << "'";
      ++passed;
    }
  }
  EXPECT_EQ(vocabularies, 8u);  // all but Gemma 3
  EXPECT_EQ(passed, 3u * 119u + 5u * 70u);
}

// Files without tokenizer.ggml.pre.
TEST(TokenizerVectors, VocabulariesAreRecognized) {
  HEARTH_NEED_SHARED("data/vocab/2026");
  std::vector<std::string> paths = Vocabularies();
  for (const char* name : {"gpt-oss", "qwen3.6", "tekken-240911"}) {
    paths.push_back(SharedPath(std::string("data/vocab/2026/ggml-vocab-") + name + ".gguf"));
  }
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const GgufMetadata metadata = GgufFile::Open(path).metadata();
    if (*metadata.FindString("tokenizer.ggml.model") != "gpt2") continue;
    const PreTokenizer* found =
        RecognizePreTokenizerOrNull(*metadata.FindStrings("tokenizer.ggml.tokens"));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, *metadata.FindString("tokenizer.ggml.pre"));
  }
}

TEST(TokenizerVectors, EncodeBooksAndDecodeThem) {
  HEARTH_NEED_SHARED("data/text");
  HEARTH_NEED_SHARED("data/vocab");
  for (const std::string& path : Vocabularies()) {
    const auto tokenizer = Open(path);
    for (const char* name : {"war-and-peace.txt", "wikitext2-valid.txt"}) {
      const std::string text = ReadWholeFile(SharedPath(std::string("data/text/") + name));
      const std::string prefix = tokenizer->kind() == "llama" ? " " : "";
      const std::string expected = tokenizer->normalizes() ? ToNfc(text) : text;
      EXPECT_TRUE(tokenizer->Decode(tokenizer->Encode(text)) == prefix + expected) << path << name;
    }
  }
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto continuation = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | (code_point >> shift & 0x3F)));
  };
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | code_point >> 6));
    continuation(0);
  } else if (code_point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | code_point >> 12));
    continuation(6);
    continuation(0);
  } else {
    text->push_back(static_cast<char>(0xF0 | code_point >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

// Every plane of Unicode, short codes more often; SentencePiece's space mark can not come back.
std::string RandomText(std::mt19937& random) {
  constexpr uint32_t kLimits[] = {0x80, 0x80, 0x250, 0x3100, 0xA000, 0x10000, 0x110000};
  std::string text;
  for (size_t n = random() % 30; n > 0; --n) {
    const uint32_t code_point = random() % kLimits[random() % std::size(kLimits)];
    if ((code_point >= 0xD800 && code_point < 0xE000) || code_point == 0x2581) continue;
    AppendUtf8(code_point, &text);
  }
  return text;
}

TEST(TokenizerVectors, RoundTripRandomTextAndBytes) {
  HEARTH_NEED_SHARED("data/vocab");
  for (const std::string& path : Vocabularies()) {
    SCOPED_TRACE(path);
    // Some bytes have no token there: those that UTF-8 never has, in Falcon's control characters.
    const bool is_total = path.find("falcon") == std::string::npos &&
                          path.find("deepseek") == std::string::npos &&
                          path.find("mpt") == std::string::npos;
    const auto tokenizer = Open(path);
    const std::string prefix = tokenizer->kind() == "llama" ? " " : "";
    const auto decoded = [&](const std::string& text) {
      return tokenizer->Decode(tokenizer->Encode(text));
    };
    std::mt19937 random(8);
    for (int i = 0; i < 5000; ++i) {
      std::string text = RandomText(random);
      const std::string expected = text.empty() ? "" : prefix + text;
      if (is_total) {
        ASSERT_EQ(decoded(text), tokenizer->normalizes() ? ToNfc(expected) : expected);
        for (char& byte : text) byte = static_cast<char>(random());
        text = tokenizer->normalizes() ? ToNfc(text) : text;
        ASSERT_EQ(decoded(text), text.empty() ? "" : prefix + text);
      } else {
        decoded(text);
      }
    }
  }
}

// OPT has GPT-2's merges under other ids.
GgufMetadata OptMetadata() {
  const auto vocabulary =
      nlohmann::json::parse(ReadWholeFile(SharedPath("data/vocab/opt/gpt2-vocab.json")));
  std::vector<std::string> tokens(vocabulary.size());
  for (const auto& [text, id] : vocabulary.items()) tokens.at(id) = text;
  std::vector<int32_t> types(tokens.size(), static_cast<int32_t>(TokenType::kNormal));
  for (const int id : {0, 1, 2}) types[id] = static_cast<int32_t>(TokenType::kControl);
  std::vector<std::string> merges;
  std::istringstream lines(ReadWholeFile(SharedPath("data/vocab/opt/gpt2-merges.txt")));
  std::string line;
  std::getline(lines, line);  // "#version"
  while (std::getline(lines, line)) {
    if (!line.empty()) merges.push_back(line);
  }
  GgufMetadata metadata("opt");
  metadata.SetString("tokenizer.ggml.model", "gpt2");
  metadata.SetString("tokenizer.ggml.pre", "gpt-2");
  metadata.SetStrings("tokenizer.ggml.tokens", tokens);
  metadata.SetInt32s("tokenizer.ggml.token_type", types);
  metadata.SetStrings("tokenizer.ggml.merges", merges);
  metadata.SetUint32("tokenizer.ggml.bos_token_id", 2);
  metadata.SetUint32("tokenizer.ggml.eos_token_id", 2);
  metadata.SetBool("tokenizer.ggml.add_bos_token", true);
  return metadata;
}

TEST(TokenizerVectors, OptSpellsAsGpt2Does) {
  HEARTH_NEED_SHARED("data/vocab/opt");
  const std::string gpt2_path = SharedPath("data/vocab/ggml-vocab-gpt-2.gguf");
  const auto opt = Tokenizer::FromGguf(OptMetadata());
  const auto gpt2 = Open(gpt2_path);
  EXPECT_EQ(opt->special().bos, 2);
  EXPECT_TRUE(opt->special().add_bos);
  // From OPT's published examples: "</s>Hello, I'm am conscious and".
  EXPECT_EQ(opt->Encode("Hello, I'm am conscious and"),
            (std::vector<TokenId>{31414, 6, 38, 437, 524, 13316, 8}));
  std::vector<Vector> texts = ReadVectors(gpt2_path);
  texts.push_back({ReadWholeFile(SharedPath("data/text/wikitext2-valid.txt")), {}});
  for (const Vector& vector : texts) {
    const auto opt_ids = opt->Encode(vector.text);
    const auto gpt2_ids = gpt2->Encode(vector.text);
    ASSERT_EQ(opt_ids.size(), gpt2_ids.size());
    for (size_t i = 0; i < opt_ids.size(); ++i) {
      ASSERT_EQ(opt->VocabularyText(opt_ids[i]), gpt2->VocabularyText(gpt2_ids[i]));
    }
  }
}

TEST(TokenizerVectors, KnowTheirSpecialTokens) {
  HEARTH_NEED_SHARED("data/vocab");
  const auto open = [](const std::string& name) {
    return Open(SharedPath("data/vocab/ggml-vocab-" + name + ".gguf"));
  };
  const auto llama3 = open("llama-bpe");
  EXPECT_EQ(llama3->special().bos, 128000);
  EXPECT_TRUE(llama3->special().add_bos);  // from the pre-tokenizer
  EXPECT_EQ(llama3->special().eot, 128009);
  EXPECT_TRUE(llama3->IsEndOfGeneration(128001));
  EXPECT_TRUE(llama3->IsEndOfGeneration(128009));
  EXPECT_EQ(llama3->Encode("<|eot_id|>", {true}), std::vector<TokenId>{128009});
  EXPECT_GT(llama3->Encode("<|eot_id|>").size(), 1u);
  EXPECT_EQ(llama3->TokenBytes(128009), "");

  const auto qwen2 = open("qwen2");
  EXPECT_EQ(qwen2->special().bos, -1);
  EXPECT_FALSE(qwen2->special().add_bos);
  EXPECT_EQ(qwen2->special().eot, 151645);
  EXPECT_TRUE(qwen2->IsEndOfGeneration(151643));

  const auto llama2 = open("llama-spm");
  EXPECT_EQ(llama2->special().bos, 1);
  EXPECT_EQ(llama2->special().eos, 2);
  EXPECT_EQ(llama2->special().unk, 0);
  EXPECT_TRUE(llama2->special().add_bos);
  EXPECT_EQ(llama2->TokenBytes(0), "<unk>");
  EXPECT_EQ(llama2->TokenBytes(13), "\n");
}

}  // namespace
}  // namespace hearth
