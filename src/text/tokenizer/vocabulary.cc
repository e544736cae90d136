#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "text/tokenizer/markers.h"

namespace hearth {
namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
constexpr std::string_view kBosKey = "tokenizer.ggml.bos_token_id";
constexpr std::string_view kEosKey = "tokenizer.ggml.eos_token_id";

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

// Without types everything is ordinary text, but for what vocabularies always spell the same way.
std::vector<TokenType> GuessTypes(const Vocabulary& vocabulary) {
  std::vector<TokenType> types(vocabulary.texts.size(), TokenType::kNormal);
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& text = vocabulary.texts[i];
    if (text.size() > 4 && text.starts_with("<|") && text.ends_with("|>")) {
      types[i] = TokenType::kControl;
    }
    if (vocabulary.kind != "llama") continue;
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

// The token of one key; -1 where it says "none" (which writers spell as -1 or as 2^32 - 1) or, with
// a warning, where the vocabulary has no such token.
TokenId CheckSpecialId(int64_t id, std::string_view key, Vocabulary* vocabulary) {
  if (id == -1 || id == std::numeric_limits<uint32_t>::max()) return -1;
  const size_t size = vocabulary->texts.size();
  if (id < 0) {
    throw CorruptVocabulary(vocabulary->where, key, "a token below " + std::to_string(size),
                            std::to_string(id));
  }
  if (static_cast<uint64_t>(id) < size) return static_cast<TokenId>(id);
  vocabulary->warnings.push_back(vocabulary->where + ": " + std::string(key) + " is " +
                                 std::to_string(id) + ", but the vocabulary has " +
                                 std::to_string(size) + " tokens: the key is not used");
  return -1;
}

// The tokens that a key names: one number, or a list of them.
std::vector<TokenId> ReadSpecialIds(const GgufMetadata& metadata, std::string_view key,
                                    Vocabulary* vocabulary) {
  const GgufValue* value = metadata.FindOrNull(key);
  if (value == nullptr) return {};
  std::vector<int64_t> numbers;
  if (value->type == GgufType::kArray) {
    numbers = *metadata.FindInts(key);
  } else {
    numbers = {*metadata.FindInt(key)};
  }
  std::vector<TokenId> ids;
  for (const int64_t number : numbers) {
    const TokenId id = CheckSpecialId(number, key, vocabulary);
    if (id >= 0) ids.push_back(id);
  }
  return ids;
}

TokenId ReadSpecialId(const GgufMetadata& metadata, std::string_view key, Vocabulary* vocabulary) {
  const std::vector<TokenId> ids = ReadSpecialIds(metadata, key, vocabulary);
  return ids.empty() ? -1 : ids.front();
}

// Whether the key is there and says that there is no such token.
bool SaysNone(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.FindOrNull(key);
  if (value == nullptr || value->type == GgufType::kArray) return false;
  const std::optional<int64_t> id = metadata.FindInt(key);
  return id == -1 || id == std::numeric_limits<uint32_t>::max();
}

void ReadSpecial(const GgufMetadata& metadata, bool default_add_bos, Vocabulary* vocabulary) {
  SpecialTokens& special = vocabulary->special;
  special.bos = ReadSpecialId(metadata, kBosKey, vocabulary);
  special.eos = ReadSpecialId(metadata, kEosKey, vocabulary);
  special.eot = ReadSpecialId(metadata, "tokenizer.ggml.eot_token_id", vocabulary);
  special.unk = ReadSpecialId(metadata, "tokenizer.ggml.unknown_token_id", vocabulary);
  if (vocabulary->kind == "llama") {
    if (special.bos < 0 && !SaysNone(metadata, kBosKey))
      special.bos = FindMarker(*vocabulary, "<s>");
    if (special.eos < 0 && !SaysNone(metadata, kEosKey)) {
      special.eos = FindMarker(*vocabulary, "</s>");
    }
  }
  if (special.eot < 0) special.eot = FindTurnEnd(*vocabulary);
  if (special.unk < 0) {
    const auto it =
        std::find(vocabulary->types.begin(), vocabulary->types.end(), TokenType::kUnknown);
    if (it != vocabulary->types.end()) {
      special.unk = static_cast<TokenId>(it - vocabulary->types.begin());
    }
  }
  // The flag without a token to add means nothing.
  const bool add_bos = metadata.FindBool("tokenizer.ggml.add_bos_token").value_or(default_add_bos);
  special.add_bos = add_bos && special.bos >= 0;
  special.embedding_end = ReadSpecialIds(metadata, kEmbeddingEndKey, vocabulary);
  const bool add_eos = metadata.FindBool("tokenizer.ggml.add_eos_token").value_or(false);
  if (special.embedding_end.empty() && add_eos && special.eos >= 0) {
    special.embedding_end = {special.eos};
  }
}

// Every token that the file names as an end, and those that end answers by their text.
std::vector<TokenId> ReadEndTokens(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  std::vector<TokenId> ends = FindEndMarkers(*vocabulary);
  for (const std::string_view key : {kEosKey, std::string_view("tokenizer.ggml.eos_token_ids"),
                                     std::string_view("tokenizer.ggml.eom_token_id"),
                                     std::string_view("tokenizer.ggml.fim_pad_token_id"),
                                     std::string_view("tokenizer.ggml.fim_rep_token_id"),
                                     std::string_view("tokenizer.ggml.fim_sep_token_id")}) {
    // What is wrong with the first was said when it was read.
    std::vector<std::string> warnings = vocabulary->warnings;
    const std::vector<TokenId> ids = ReadSpecialIds(metadata, key, vocabulary);
    if (key == kEosKey) vocabulary->warnings = std::move(warnings);
    ends.insert(ends.end(), ids.begin(), ids.end());
  }
  if (vocabulary->special.eos >= 0) ends.push_back(vocabulary->special.eos);
  if (vocabulary->special.eot >= 0) ends.push_back(vocabulary->special.eot);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// Whether the file says that texts are normalized, or that they are not.
std::optional<bool> ReadNfc(const GgufMetadata& metadata, const std::string& where) {
  const std::string* name = metadata.FindString(kNormalizerKey);
  if (name == nullptr) return std::nullopt;
  if (*name != "NFC" && *name != "none") {
    throw CorruptVocabulary(where, kNormalizerKey, "NFC or none", Printable(*name));
  }
  return *name == "NFC";
}

// All chat templates of the file.
std::string ChatTemplates(const GgufMetadata& metadata) {
  constexpr std::string_view kPrefix = "tokenizer.chat_template";
  std::string all;
  for (const auto& [key, value] : metadata.values()) {
    if (key.rfind(kPrefix, 0) != 0 || value.type != GgufType::kString) continue;
    all.append(std::get<std::string>(value.value)).append("\n");
  }
  return all;
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
  TypeEndMarkers(&vocabulary);
  ReadSpecial(metadata, default_add_bos, &vocabulary);
  vocabulary.end_tokens = ReadEndTokens(metadata, &vocabulary);
  vocabulary.is_marker = FindUserDefinedMarkers(vocabulary, ChatTemplates(metadata));
  vocabulary.nfc = ReadNfc(metadata, vocabulary.where);
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
