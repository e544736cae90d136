#include "prepare/synth/synth_vocabulary.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581 stands for a space

// Frequent in English text; '_' stands for the word mark. Every piece is two earlier ones, the
// syllables below counted among them.
constexpr std::string_view kCommonPieces[] = {
    "_a",   "_i",  "_o",  "_t",  "_s",  "_w",  "_b",  "_c",    "_f",    "_p",  "_m",  "_d",
    "_h",   "_l",  "_n",  "_I",  "th",  "an",  "in",  "on",    "er",    "en",  "at",  "or",
    "es",   "is",  "it",  "ed",  "st",  "nd",  "ng",  "ll",    "ou",    "ch",  "sh",  "wh",
    "gh",   "nt",  "rs",  "ly",  "ee",  "oo",  "the", "and",   "ing",   "hat", "his", "_the",
    "_and", "_in", "_is", "_it", "_at", "_on", "_or", "_that", "_this", "_of", "_an"};

constexpr std::string_view kConsonants = "bcdfghjklmnprstvwz";
constexpr std::string_view kVowels = "aeiou";

class PieceList {
 public:
  explicit PieceList(int64_t size) : size_(static_cast<size_t>(size)) {
    texts_.reserve(size_);
    types_.reserve(size_);
    scores_.reserve(size_);
  }

  bool full() const { return texts_.size() >= size_; }

  // Does nothing where the list is full.
  void Add(std::string text, TokenType type) {
    if (full()) return;
    // Ordinary pieces: the earlier one merges first.
    scores_.push_back(type == TokenType::kNormal ? -static_cast<float>(num_pieces_++) : 0.0f);
    texts_.push_back(std::move(text));
    types_.push_back(static_cast<int32_t>(type));
  }

  void MoveTo(GgufMetadata* metadata) && {
    metadata->SetStrings("tokenizer.ggml.tokens", std::move(texts_));
    metadata->SetFloat32s("tokenizer.ggml.scores", std::move(scores_));
    metadata->SetInt32s("tokenizer.ggml.token_type", std::move(types_));
  }

 private:
  const size_t size_;
  int64_t num_pieces_ = 0;
  std::vector<std::string> texts_;
  std::vector<int32_t> types_;
  std::vector<float> scores_;
};

// What every vocabulary has, in Llama's order.
void AddBasics(PieceList* pieces) {
  pieces->Add("<unk>", TokenType::kUnknown);
  pieces->Add("<s>", TokenType::kControl);
  pieces->Add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    pieces->Add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  }
  pieces->Add(std::string(kWordMark), TokenType::kNormal);
  // Letters first: a small vocabulary should spell words, not punctuation.
  const auto add_range = [&](char first, char last) {
    for (char c = first; c <= last; ++c) pieces->Add(std::string(1, c), TokenType::kNormal);
  };
  add_range('a', 'z');
  add_range('!', '/');
  add_range('0', '9');
  add_range('A', 'Z');
  add_range(':', '@');
  add_range('[', '`');
  add_range('{', '~');
}

void AddCommonPieces(PieceList* pieces) {
  for (const std::string_view pattern : kCommonPieces) {
    std::string text;
    for (const char c : pattern) {
      text += c == '_' ? std::string(kWordMark) : std::string(1, c);
    }
    pieces->Add(std::move(text), TokenType::kNormal);
  }
}

std::vector<std::string> Syllables() {
  std::vector<std::string> syllables;
  for (const char consonant : kConsonants) {
    for (const char vowel : kVowels) syllables.push_back({consonant, vowel});
  }
  return syllables;
}

void AddWord(const std::string& word, PieceList* pieces) {
  pieces->Add(word, TokenType::kNormal);
  pieces->Add(std::string(kWordMark) + word, TokenType::kNormal);
}

// Words of two syllables, of three, until the list is full. Each word is one of the round before
// and a syllable.
void AddLongerWords(const std::vector<std::string>& syllables, PieceList* pieces) {
  std::vector<std::string> shorter = syllables;
  while (!pieces->full()) {
    std::vector<std::string> words;
    for (const std::string& start : shorter) {
      if (pieces->full()) return;
      for (const std::string& syllable : syllables) {
        words.push_back(start + syllable);
        AddWord(words.back(), pieces);
      }
    }
    shorter = std::move(words);
  }
}

}  // namespace

void AddSyntheticVocabulary(int64_t vocab_size, GgufMetadata* metadata) {
  PieceList pieces(vocab_size);
  AddBasics(&pieces);
  // Syllables before all longer pieces: they merge first, so that a common piece across the seam
  // of two ("an" in "bani") cannot cut a word apart.
  const std::vector<std::string> syllables = Syllables();
  for (const std::string& syllable : syllables) AddWord(syllable, &pieces);
  AddCommonPieces(&pieces);
  AddLongerWords(syllables, &pieces);
  std::move(pieces).MoveTo(metadata);
  metadata->SetString("tokenizer.ggml.model", "llama");
  metadata->SetString("tokenizer.ggml.pre", "default");
  metadata->SetUint32("tokenizer.ggml.unknown_token_id", 0);
  metadata->SetUint32("tokenizer.ggml.bos_token_id", 1);
  metadata->SetUint32("tokenizer.ggml.eos_token_id", 2);
  metadata->SetBool("tokenizer.ggml.add_bos_token", true);
  metadata->SetBool("tokenizer.ggml.add_eos_token", false);
}

}  // namespace hearth
