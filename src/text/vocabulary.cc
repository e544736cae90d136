#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>

namespace hearth {
namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";

// How chat models spell the end of a turn; the first that a vocabulary has becomes its `eot`
// where the file names none.
constexpr std::array<std::string_view, 5> kTurnEnds = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",
    "<|eom_id|>",  // of a turn that calls a tool
};
// And the end of everything.
constexpr std::array<std::string_view, 3> kTextEnds = {"<|end_of_text|>", "<|endoftext|>", "</s>"};

std::vector<std::string> ReadTexts(const GgufMetadata& metadata, const std::string& where) {
  const std::vector<std::string>* tokens = metadata.FindStrings(kTokensKey);
  if (tokens == nullptr) {
    throw CorruptVocabulary(where, kTokensKey, "an array of strings", "nothing");
  }
  if (tokens->empty()) {
    throw CorruptVocabulary(where, kTokensKey, "at least one token", "an empty array");
  }
  if (tokens->size() > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    throw CorruptVocabulary(where, kTokensKey, "fewer than 2^31 tokens",
                            std::to_string(tokens->size()));
  }
  return *tokens;
}

// Without types everything is ordinary text, but for what a SentencePiece vocabulary always spells
// the same way.
std::vector<TokenType> GuessTypes(const Vocabulary& vocabulary) {
  std::vector<TokenType> types(vocabulary.texts.size(), TokenType::kNormal);
  if (vocabulary.kind != "llama") return types;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& text = vocabulary.texts[i];
    if (ByteTokenValue(text) >= 0) types[i] = TokenType::kByte;
    if (text == "<unk>") types[i] = TokenType::kUnknown;
    if (text == "<s>" || text == "</s>") types[i] = TokenType::kControl;
  }
  return types;
}

std::vector<TokenType> ReadTypes(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  const std::optional<std::vector<int64_t>> numbers = metadata.FindInts(kTypesKey);
  if (!numbers) return GuessTypes(vocabulary);
  if (numbers->size() != vocabulary.texts.size()) {
    throw CorruptVocabulary(vocabulary.where, kTypesKey,
                            std::to_string(vocabulary.texts.size()) + " entries, one per token",
                            std::to_string(numbers->size()));
  }
  std::vector<TokenType> types;
  types.reserve(numbers->size());
  for (const int64_t number : *numbers) {
    // 0 means "undefined" and is written by some converters for ordinary tokens.
    if (number < 0 || number > static_cast<int64_t>(TokenType::kByte)) {
      throw CorruptVocabulary(vocabulary.where, kTypesKey, "types from 1 to 6",
                              std::to_string(number));
    }
    types.push_back(number == 0 ? TokenType::kNormal : static_cast<TokenType>(number));
  }
  return types;
}

// -1 where the key is missing or says "none" (which writers spell as -1 or as 2^32 - 1).
TokenId ReadSpecialId(const GgufMetadata& metadata, const Vocabulary& vocabulary,
                      std::string_view key) {
  const std::optional<int64_t> id = metadata.FindInt(key);
  if (!id || *id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;
  if (*id < 0 || static_cast<uint64_t>(*id) >= vocabulary.texts.size()) {
    throw CorruptVocabulary(vocabulary.where, key,
                            "a token below " + std::to_string(vocabulary.texts.size()),
                            std::to_string(*id));
  }
  return static_cast<TokenId>(*id);
}

bool IsMarker(const Vocabulary& vocabulary, TokenId id) {
  const TokenType type = vocabulary.types[static_cast<size_t>(id)];
  return type == TokenType::kControl || type == TokenType::kUserDefined;
}

// Ids of tokens, none of them ordinary text, that have one of the texts looked for.
std::unordered_map<std::string_view, TokenId> FindMarkers(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, TokenId> found;
  const auto is_wanted = [](std::string_view text) {
    return text == "<s>" || std::count(kTurnEnds.begin(), kTurnEnds.end(), text) > 0 ||
           std::count(kTextEnds.begin(), kTextEnds.end(), text) > 0;
  };
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (IsMarker(vocabulary, id) && is_wanted(vocabulary.texts[i])) {
      found.emplace(vocabulary.texts[i], id);
    }
  }
  return found;
}

SpecialTokens ReadSpecial(const GgufMetadata& metadata, const Vocabulary& vocabulary,
                          const std::unordered_map<std::string_view, TokenId>& markers,
                          bool default_add_bos) {
  const auto find_marker = [&markers](std::string_view text) {
    const auto it = markers.find(text);
    return it == markers.end() ? TokenId{-1} : it->second;
  };
  SpecialTokens special;
  special.bos = ReadSpecialId(metadata, vocabulary, "tokenizer.ggml.bos_token_id");
  special.eos = ReadSpecialId(metadata, vocabulary, "tokenizer.ggml.eos_token_id");
  special.eot = ReadSpecialId(metadata, vocabulary, "tokenizer.ggml.eot_token_id");
  special.unk = ReadSpecialId(metadata, vocabulary, "tokenizer.ggml.unknown_token_id");
  if (vocabulary.kind == "llama") {
    if (!metadata.Has("tokenizer.ggml.bos_token_id")) special.bos = find_marker("<s>");
    if (!metadata.Has("tokenizer.ggml.eos_token_id")) special.eos = find_marker("</s>");
  }
  for (size_t i = 0; i < kTurnEnds.size() && special.eot < 0; ++i) {
    special.eot = find_marker(kTurnEnds[i]);
  }
  if (special.unk < 0) {
    const auto it =
        std::find(vocabulary.types.begin(), vocabulary.types.end(), TokenType::kUnknown);
    if (it != vocabulary.types.end()) {
      special.unk = static_cast<TokenId>(it - vocabulary.types.begin());
    }
  }
  // The flag without a token to add means nothing.
  const bool add_bos = metadata.FindBool("tokenizer.ggml.add_bos_token").value_or(default_add_bos);
  special.add_bos = add_bos && special.bos >= 0;
  return special;
}

}  // namespace

Vocabulary ReadVocabulary(const GgufMetadata& metadata, std::string_view kind,
                          bool default_add_bos) {
  Vocabulary vocabulary;
  vocabulary.where = VocabularyWhere(metadata);
  vocabulary.kind = std::string(kind);
  const std::string* pre = metadata.FindString("tokenizer.ggml.pre");
  if (pre != nullptr) vocabulary.pre = *pre;
  vocabulary.texts = ReadTexts(metadata, vocabulary.where);
  vocabulary.types = ReadTypes(metadata, vocabulary);
  const auto markers = FindMarkers(vocabulary);
  vocabulary.special = ReadSpecial(metadata, vocabulary, markers, default_add_bos);

  std::vector<TokenId>& ends = vocabulary.end_tokens;
  for (const auto& [text, id] : markers) {
    if (text != "<s>") ends.push_back(id);
  }
  if (vocabulary.special.eos >= 0) ends.push_back(vocabulary.special.eos);
  if (vocabulary.special.eot >= 0) ends.push_back(vocabulary.special.eot);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return vocabulary;
}

Error CorruptVocabulary(std::string_view where, std::string_view key, std::string_view expected,
                        std::string_view found) {
  return Error(ErrorCode::kCorrupt, where, key, expected, found);
}

std::string VocabularyWhere(const GgufMetadata& metadata) {
  return metadata.file_name().empty() ? "tokenizer" : metadata.file_name();
}

int ByteTokenValue(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if (digit >= 'A' && digit <= 'F') {
      value += digit - 'A' + 10;
    } else if (digit >= 'a' && digit <= 'f') {
      value += digit - 'a' + 10;
    } else {
      return -1;
    }
  }
  return value;
}

}  // namespace hearth
