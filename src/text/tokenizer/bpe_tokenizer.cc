#include "text/tokenizer/bpe_tokenizer.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "text/tokenizer/byte_letters.h"
#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

constexpr char kPreKey[] = "tokenizer.ggml.pre";
constexpr char kMergesKey[] = "tokenizer.ggml.merges";

// What the file names, else what its vocabulary is known to need; null where neither says.
const PreTokenizer* FindPreTokenizer(const GgufMetadata& metadata) {
  const std::string* name = metadata.FindString(kPreKey);
  if (name == nullptr || name->empty() || *name == "default") {
    const std::vector<std::string>* tokens = metadata.FindStrings("tokenizer.ggml.tokens");
    return tokens == nullptr ? nullptr : RecognizePreTokenizerOrNull(*tokens);
  }
  const PreTokenizer* found = FindPreTokenizerOrNull(*name);
  if (found != nullptr) return found;
  std::string known = "one of default";
  for (const PreTokenizer& pre_tokenizer : PreTokenizers()) {
    known.append(", ").append(pre_tokenizer.name);
    for (const std::string_view alias : pre_tokenizer.aliases) known.append(", ").append(alias);
  }
  throw Error(ErrorCode::kUnsupported, VocabularyWhere(metadata), kPreKey, known, Printable(*name));
}

std::vector<Spelling> SpellBpeTokens(const Vocabulary& vocabulary) {
  std::vector<Spelling> spellings;
  spellings.reserve(vocabulary.texts.size());
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const std::string& text = vocabulary.texts[i];
    const TokenType type = vocabulary.types[i];
    if (type == TokenType::kControl) {
      spellings.push_back({});
      continue;
    }
    // Other texts than byte letters stand for themselves; merging cannot yield them.
    std::optional<std::string> bytes;
    if (type != TokenType::kUnknown && type != TokenType::kUserDefined) {
      bytes = LettersToBytes(text);
    }
    spellings.push_back({bytes.value_or(text), bytes && type == TokenType::kNormal});
  }
  return spellings;
}

}  // namespace

std::unique_ptr<Tokenizer> BpeTokenizer::Make(const GgufMetadata& metadata) {
  const PreTokenizer* named = FindPreTokenizer(metadata);
  const PreTokenizer& pre_tokenizer = named != nullptr ? *named : *FindPreTokenizerOrNull("gpt-2");
  Vocabulary vocabulary = ReadVocabulary(metadata, "gpt2", pre_tokenizer.add_bos);
  const std::string where = vocabulary.where;
  if (named == nullptr) {
    vocabulary.warnings.push_back(where + ": " + kPreKey +
                                  " does not say how text is split, and the vocabulary is not one "
                                  "that is known: it is split as GPT-2 does");
  } else if (vocabulary.pre.empty() || vocabulary.pre == "default") {
    vocabulary.pre = named->name;
  }
  vocabulary.nfc = vocabulary.nfc.value_or(pre_tokenizer.nfc);
  const std::vector<std::string>* merges = metadata.FindStrings(kMergesKey);
  if (merges == nullptr) {
    throw CorruptVocabulary(where, kMergesKey, "an array of strings", "nothing");
  }
  const std::vector<Spelling> spellings = SpellBpeTokens(vocabulary);
  std::unique_ptr<BpeTokenizer> tokenizer(
      new BpeTokenizer(std::move(vocabulary), spellings, pre_tokenizer));
  tokenizer->AddMerges(*merges, where);
  return tokenizer;
}

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary, const std::vector<Spelling>& spellings,
                           const PreTokenizer& pre_tokenizer)
    : VocabTokenizer(std::move(vocabulary), spellings),
      splitter_(SplitPatterns(pre_tokenizer)),
      ignore_merges_(pre_tokenizer.ignore_merges) {
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    byte_tokens_[byte] = FindMergeable({&text, 1});
  }
}

void BpeTokenizer::AddMerges(const std::vector<std::string>& merges, const std::string& where) {
  merges_ = PairTable(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view line = merges[rank];
    // Letters are never spaces, so that the first one divides.
    const size_t space = line.find(' ', 1);
    const auto corrupt = [&](std::string_view expected) {
      return CorruptVocabulary(where, kMergesKey, expected,
                               Printable(line) + " (entry " + std::to_string(rank) + ")");
    };
    if (space == std::string_view::npos) throw corrupt("two tokens with a space between");
    const std::string_view left_text = line.substr(0, space);
    const std::string_view right_text = line.substr(space + 1);
    const std::string merged_text = std::string(left_text).append(right_text);
    const TokenId left = FindToken(left_text);
    const TokenId right = FindToken(right_text);
    const TokenId merged = FindToken(merged_text);
    if (left < 0 || right < 0 || merged < 0) throw corrupt("tokens of the vocabulary");
    // Others than normal ones never take part in merging, and repeated texts count once.
    const auto takes_part = [this](TokenId id) { return type(id) == TokenType::kNormal; };
    if (takes_part(left) && takes_part(right) && takes_part(merged)) {
      merges_.Insert(left, right, {static_cast<uint32_t>(rank), merged});
    }
  }
}

void BpeTokenizer::EncodeText(std::string_view text, TextPlace /*place*/,
                              std::vector<TokenId>* ids) const {
  MergeScratch scratch;
  const RegexSplitter::Emit encode = [&](std::string_view piece) {
    EncodePiece(piece, &scratch, ids);
  };
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    splitter_.Split(text.substr(0, valid), encode);
    text.remove_prefix(valid);
    // Bytes that are not UTF-8 are a piece of their own.
    size_t invalid = 0;
    while (invalid < text.size()) {
      const Utf8Char next = ScanUtf8(text.substr(invalid));
      if (next.status == Utf8Status::kComplete) break;
      invalid += next.length;
    }
    if (invalid > 0) encode(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

void BpeTokenizer::EncodePiece(std::string_view piece, MergeScratch* scratch,
                               std::vector<TokenId>* ids) const {
  if (ignore_merges_) {
    const TokenId id = FindMergeable(piece);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  const auto find = [this](const Symbol& left, const Symbol& right) {
    return merges_.Find(left.id, right.id);
  };
  while (!piece.empty()) {
    const size_t length = Utf8Cut(piece, kMaxPieceBytes);
    scratch->symbols.clear();
    for (size_t i = 0; i < length; ++i) {
      const TokenId id = byte_tokens_[static_cast<uint8_t>(piece[i])];
      scratch->symbols.push_back({static_cast<uint32_t>(i), 1, id});
    }
    MergeSymbols(find, scratch);
    for (const Symbol& symbol : scratch->symbols) {
      // A byte without a token is unknown; where that has no token either, it is lost.
      const TokenId id = symbol.id >= 0 ? symbol.id : special().unk;
      if (id >= 0) ids->push_back(id);
    }
    piece.remove_prefix(length);
  }
}

}  // namespace hearth
