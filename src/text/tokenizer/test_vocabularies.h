// Small vocabularies of both kinds, for tests and fuzzing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "text/tokenizer/byte_letters.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Collects tokens with their types and scores; ids are in order of addition.
class VocabularyBuilder {
 public:
  VocabularyBuilder& Add(std::string text, TokenType type = TokenType::kNormal, float score = 0) {
    texts_.push_back(std::move(text));
    types_.push_back(static_cast<int32_t>(type));
    scores_.push_back(score);
    return *this;
  }

  // "<0x00>" to "<0xFF>".
  VocabularyBuilder& AddByteTokens() {
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte) {
      Add(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", TokenType::kByte);
    }
    return *this;
  }

  // One token per byte, spelled in GPT-2's byte letters.
  VocabularyBuilder& AddByteLetters() {
    for (int byte = 0; byte < 256; ++byte) Add(ByteLetter(static_cast<uint8_t>(byte)));
    return *this;
  }

  // "left right", and the token that the two become.
  VocabularyBuilder& AddMerge(const std::string& left, const std::string& right) {
    merges_.push_back(std::string(left).append(" ").append(right));
    return Add(left + right);
  }

  int32_t last_id() const { return static_cast<int32_t>(texts_.size()) - 1; }

  GgufMetadata Spm() const {
    GgufMetadata metadata = Common("llama");
    metadata.SetFloat32s("tokenizer.ggml.scores", scores_);
    return metadata;
  }

  GgufMetadata Bpe(const std::string& pre = "gpt-2") const {
    GgufMetadata metadata = Common("gpt2");
    metadata.SetString("tokenizer.ggml.pre", pre);
    metadata.SetStrings("tokenizer.ggml.merges", merges_);
    return metadata;
  }

 private:
  GgufMetadata Common(const std::string& model) const {
    GgufMetadata metadata("test.gguf");
    metadata.SetString("tokenizer.ggml.model", model);
    metadata.SetStrings("tokenizer.ggml.tokens", texts_);
    metadata.SetInt32s("tokenizer.ggml.token_type", types_);
    return metadata;
  }

  std::vector<std::string> texts_;
  std::vector<int32_t> types_;
  std::vector<float> scores_;
  std::vector<std::string> merges_;
};

inline constexpr char kTestSpaceMark[] = "\xE2\x96\x81";

// <unk> <s> </s>, byte tokens, words that merge, chat markers and a user-defined token.
inline VocabularyBuilder SmallSpmVocabulary() {
  const std::string space = kTestSpaceMark;
  VocabularyBuilder builder;
  builder.Add("<unk>", TokenType::kUnknown)
      .Add("<s>", TokenType::kControl)
      .Add("</s>", TokenType::kControl)
      .AddByteTokens()
      .Add("<|im_start|>", TokenType::kControl)
      .Add("<|im_end|>", TokenType::kControl)
      .Add("<tool>", TokenType::kUserDefined)
      .Add("th", TokenType::kNormal, -1)
      .Add("he", TokenType::kNormal, -2)
      .Add("the", TokenType::kNormal, -3)
      .Add(space + "the", TokenType::kNormal, -4)
      .Add(space + "t", TokenType::kNormal, -5)
      .Add("ab", TokenType::kNormal, -6)
      .Add("ba", TokenType::kNormal, -6)
      .Add(space + space, TokenType::kNormal, -7)
      .Add("\xC3\xA9t", TokenType::kNormal, -8);  // "ét", whose é is no token
  for (const char* text : {kTestSpaceMark, "t", "h", "e", "a", "b", "\xE4\xB8\xAD"}) {
    builder.Add(text, TokenType::kNormal, -100);
  }
  return builder;
}

// All byte letters, a few merges, chat markers and user-defined runs of spaces.
inline VocabularyBuilder SmallBpeVocabulary() {
  const std::string space = ByteLetter(' ');
  VocabularyBuilder builder;
  builder.AddByteLetters()
      .AddMerge("h", "e")
      .AddMerge("l", "l")
      .AddMerge("he", "ll")
      .AddMerge("hell", "o")
      .AddMerge(space, "w")
      .AddMerge("a", "a")
      .AddMerge("aa", "aa")
      .AddMerge(ByteLetter(0xC3), ByteLetter(0xA9))  // é
      .Add("<|endoftext|>", TokenType::kControl)
      .Add("<|im_start|>", TokenType::kControl)
      .Add("<|im_end|>", TokenType::kControl)
      .Add("    ", TokenType::kUserDefined)
      .Add("   ", TokenType::kUserDefined)
      .Add("<tool>", TokenType::kUserDefined);
  return builder;
}

}  // namespace hearth
