#include "text/tokenizer/spm_tokenizer.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space
constexpr char kScoresKey[] = "tokenizer.ggml.scores";

std::string Unescape(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const size_t mark = text.find(kSpaceMark);
    bytes += text.substr(0, mark);
    if (mark == std::string_view::npos) break;
    bytes += ' ';
    text.remove_prefix(mark + kSpaceMark.size());
  }
  return bytes;
}

Spelling SpellByteToken(const Vocabulary& vocabulary, size_t id) {
  const int byte = ByteTokenValue(vocabulary.texts[id]);
  if (byte < 0) {
    throw CorruptVocabulary(vocabulary.where, "text of byte token " + std::to_string(id),
                            "<0x00> to <0xFF>", Printable(vocabulary.texts[id]));
  }
  return {std::string(1, static_cast<char>(byte)), false};
}

std::vector<Spelling> SpellSpmTokens(const Vocabulary& vocabulary) {
  std::vector<Spelling> spellings;
  spellings.reserve(vocabulary.texts.size());
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    if (type == TokenType::kControl) {
      spellings.push_back({});
    } else if (type == TokenType::kByte) {
      spellings.push_back(SpellByteToken(vocabulary, i));
    } else if (type == TokenType::kUnknown) {
      spellings.push_back({vocabulary.texts[i], false});
    } else {
      spellings.push_back({Unescape(vocabulary.texts[i]), type == TokenType::kNormal});
    }
  }
  return spellings;
}

// Numbers that order scores from high to low (a float's bits, made monotonic), all below
// Merge::kNever.
uint32_t PriorityOfScore(float score) {
  score += 0.0f;  // -0 becomes 0
  uint32_t bits = 0;
  std::memcpy(&bits, &score, sizeof(bits));
  const bool is_negative = (bits >> 31) != 0;
  const uint32_t ascending = is_negative ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

// Where the scores are missing, the place in the vocabulary says the same: training appends pieces
// in the order of their merges.
std::vector<uint32_t> ReadPriorities(const GgufMetadata& metadata, Vocabulary* vocabulary) {
  const std::optional<std::vector<float>> scores = metadata.FindFloats(kScoresKey);
  std::vector<uint32_t> priorities;
  if (!scores) {
    vocabulary->warnings.push_back(vocabulary->where + ": there is no " + kScoresKey +
                                   ": pieces are merged in the order of the vocabulary");
    priorities.resize(vocabulary->texts.size());
    std::iota(priorities.begin(), priorities.end(), 0u);
    return priorities;
  }
  if (scores->size() != vocabulary->texts.size()) {
    throw CorruptVocabulary(vocabulary->where, kScoresKey,
                            std::to_string(vocabulary->texts.size()) + " scores, one per token",
                            std::to_string(scores->size()));
  }
  priorities.reserve(scores->size());
  for (const float score : *scores) {
    if (std::isnan(score)) {
      throw CorruptVocabulary(vocabulary->where, kScoresKey, "numbers", "NaN");
    }
    priorities.push_back(PriorityOfScore(score));
  }
  return priorities;
}

bool HasSpaceInside(std::string_view bytes) {
  for (size_t i = 1; i < bytes.size(); ++i) {
    if (bytes[i] == ' ' && bytes[i - 1] != ' ') return true;
  }
  return false;
}

// Length of the spaces and the word after them that `text` begins with.
size_t WordLength(std::string_view text) {
  const size_t letters = text.find_first_not_of(' ');
  if (letters == std::string_view::npos) return text.size();
  const size_t end = text.find(' ', letters);
  return end == std::string_view::npos ? text.size() : end;
}

}  // namespace

std::unique_ptr<Tokenizer> SpmTokenizer::Make(const GgufMetadata& metadata) {
  Vocabulary vocabulary = ReadVocabulary(metadata, "llama", /*default_add_bos=*/true);
  std::vector<uint32_t> priorities = ReadPriorities(metadata, &vocabulary);
  const std::vector<Spelling> spellings = SpellSpmTokens(vocabulary);
  const SpacePrefix space_prefix = ReadSpacePrefix(metadata, vocabulary.where);
  return std::unique_ptr<Tokenizer>(
      new SpmTokenizer(std::move(vocabulary), spellings, std::move(priorities), space_prefix));
}

SpmTokenizer::SpacePrefix SpmTokenizer::ReadSpacePrefix(const GgufMetadata& metadata,
                                                        const std::string& where) {
  if (!metadata.FindBool("tokenizer.ggml.add_space_prefix").value_or(true)) {
    return SpacePrefix::kNever;
  }
  const std::string* name = metadata.FindString(kSpacePrefixKey);
  if (name == nullptr || *name == "text") return SpacePrefix::kText;
  if (*name == "word") return SpacePrefix::kWord;
  if (*name == "first") return SpacePrefix::kFirst;
  throw CorruptVocabulary(where, kSpacePrefixKey, "text, word or first", Printable(*name));
}

SpmTokenizer::SpmTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings,
                           std::vector<uint32_t> priorities, SpacePrefix space_prefix)
    : VocabTokenizer(std::move(vocabulary), spellings),
      space_prefix_(space_prefix),
      priorities_(std::move(priorities)) {
  adds_space_ = space_prefix != SpacePrefix::kNever;
  byte_tokens_.fill(-1);
  for (size_t i = 0; i < vocab_size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (type(id) == TokenType::kByte) {
      TokenId& token = byte_tokens_[static_cast<uint8_t>(TokenBytes(id)[0])];
      if (token < 0) token = id;
    } else if (type(id) == TokenType::kNormal && HasSpaceInside(TokenBytes(id))) {
      words_are_separate_ = false;
    }
  }
}

bool SpmTokenizer::TakesSpace(std::string_view text, TextPlace place) const {
  if (place == TextPlace::kInside || space_prefix_ == SpacePrefix::kNever) return false;
  if (space_prefix_ == SpacePrefix::kText) return true;
  if (text.starts_with(' ') || text.starts_with(kSpaceMark)) return false;
  return space_prefix_ == SpacePrefix::kWord || place == TextPlace::kStart;
}

void SpmTokenizer::EncodeText(std::string_view text, TextPlace place,
                              std::vector<TokenId>* ids) const {
  // As SentencePiece does: its space mark, written out in a text, is a space.
  std::string normalized = TakesSpace(text, place) ? " " : "";
  normalized += text.find(kSpaceMark) == std::string_view::npos ? text : Unescape(text);
  MergeScratch scratch;
  for (std::string_view rest = normalized; !rest.empty();) {
    const size_t word = words_are_separate_ ? WordLength(rest) : rest.size();
    const size_t length = Utf8Cut(rest.substr(0, word), kMaxPieceBytes);
    EncodeWord(rest.substr(0, length), &scratch, ids);
    rest.remove_prefix(length);
  }
}

void SpmTokenizer::EncodeWord(std::string_view word, MergeScratch* scratch,
                              std::vector<TokenId>* ids) const {
  scratch->symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const Utf8Char next = ScanUtf8(word.substr(at));
    const uint32_t length = next.status == Utf8Status::kComplete ? next.length : 1;
    scratch->symbols.push_back(
        {static_cast<uint32_t>(at), length, FindMergeable(word.substr(at, length))});
    at += length;
  }
  const auto find = [this, word](const Symbol& left, const Symbol& right) {
    const TokenId id = FindMergeable(word.substr(left.begin, left.length + right.length));
    return id < 0 ? Merge{} : Merge{priorities_[static_cast<size_t>(id)], id};
  };
  MergeSymbols(find, scratch);
  for (const Symbol& symbol : scratch->symbols) {
    if (symbol.id >= 0) {
      ids->push_back(symbol.id);
    } else {
      EncodeBytes(word.substr(symbol.begin, symbol.length), ids);
    }
  }
}

void SpmTokenizer::EncodeBytes(std::string_view bytes, std::vector<TokenId>* ids) const {
  bool all_have_tokens = true;
  for (const char byte : bytes) {
    all_have_tokens = all_have_tokens && byte_tokens_[static_cast<uint8_t>(byte)] >= 0;
  }
  if (all_have_tokens) {
    for (const char byte : bytes) ids->push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
  } else if (special().unk >= 0 && (ids->empty() || ids->back() != special().unk)) {
    // As SentencePiece does, one unknown token for a run of unknown characters.
    ids->push_back(special().unk);
  }
}

}  // namespace hearth
