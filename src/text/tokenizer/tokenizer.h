// Text to token ids and back, as the model was trained.
//
// Built from a GGUF's `tokenizer.ggml.*` keys: SentencePiece-style BPE with byte fallback
// (`model` = llama) and byte-level BPE (`model` = gpt2, pre-tokenizer by `tokenizer.ggml.pre`;
// where that is missing or "default" the vocabulary is recognized, else GPT-2's, with a warning).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace hearth {

using TokenId = int32_t;

// As stored in tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct EncodeOptions {
  // Also recognize control tokens and user-defined markers written out in the text ("<|im_end|>").
  // Only for text that the program wrote itself: never for what a user typed.
  bool parse_special = false;
};

// Part of a text that is written by several hands.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;  // as in EncodeOptions
};

// Special token ids; -1 where the model has none.
struct SpecialTokens {
  TokenId bos = -1;
  TokenId eos = -1;
  TokenId eot = -1;  // end of a chat turn
  TokenId unk = -1;
  bool add_bos = false;  // texts begin with BOS
  // What texts to be embedded end with: kEmbeddingEndKey (text/tokenizer/vocabulary.h), else EOS
  // where the file says tokenizer.ggml.add_eos_token. A text to be continued must not end so.
  std::vector<TokenId> embedding_end = {};
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Throws Error(kUnsupported) for a tokenizer or pre-tokenizer that is not built in, naming it,
  // and Error(kCorrupt) for a vocabulary that contradicts itself.
  static std::unique_ptr<Tokenizer> FromGguf(const GgufMetadata& metadata);

  // Token ids of `text` (UTF-8; invalid bytes are encoded as bytes), without BOS or EOS.
  // Never throws on account of the text; needs time about linear in its length.
  virtual std::vector<TokenId> Encode(std::string_view text, EncodeOptions options = {}) const = 0;

  // Token ids of the segments as one text: ordinary text merges across their borders, special
  // tokens are recognized inside a segment only. (This default encodes each by itself.)
  virtual std::vector<TokenId> EncodeSegments(const std::vector<TextSegment>& segments) const;

  // `ids` after BOS where the model begins texts with it.
  std::vector<TokenId> WithBos(std::vector<TokenId> ids) const;

  // The bytes that a token stands for in running text. May be part of a UTF-8 character.
  // Control tokens yield nothing, the unknown token its vocabulary text. id must be in range.
  virtual std::string_view TokenBytes(TokenId id) const = 0;

  const std::string& kind() const { return kind_; }  // "llama" or "gpt2"
  // Pre-tokenizer name as the file has it, or that of a recognized vocabulary; may be empty.
  const std::string& pre() const { return pre_; }
  // What the file leaves open or has wrong, and how it was read: sentences for the user.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Texts are brought to normal form C before they are encoded.
  bool normalizes() const { return normalizes_; }
  size_t vocab_size() const { return texts_.size(); }
  const SpecialTokens& special() const { return special_; }
  // As in the vocabulary: U+2581 for a space, GPT-2's byte letters, "<0x0A>". id in range.
  const std::string& VocabularyText(TokenId id) const { return texts_[static_cast<size_t>(id)]; }
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  // What ends an answer: every end that the file names, and what the vocabulary spells as one
  // (<|im_end|>, <|eot_id|>, <|fim_pad|>, ...).
  bool IsEndOfGeneration(TokenId id) const;
  // Exact match in the vocabulary, -1 where there is none.
  virtual TokenId FindToken(std::string_view vocabulary_text) const = 0;

  // Encode puts a space before a text, which is no part of it.
  bool adds_space() const { return adds_space_; }

  // Convenience: TokenBytes of all, joined.
  std::string Decode(const std::vector<TokenId>& ids) const;

 protected:
  std::string kind_;
  std::string pre_;
  std::vector<std::string> texts_;
  std::vector<TokenType> types_;
  SpecialTokens special_;
  bool adds_space_ = false;
  bool normalizes_ = false;
  std::vector<std::string> warnings_;
  std::vector<TokenId> end_tokens_;  // sorted
};

// Turns a stream of tokens into a stream of text that never splits a UTF-8 character.
class StreamDecoder {
 public:
  // Keeps a reference; the tokenizer must outlive it.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Complete characters that the token makes available; bytes that can never become valid UTF-8
  // are replaced by U+FFFD.
  std::string Push(TokenId id);
  // What is left at the end of the stream: an incomplete character becomes U+FFFD.
  std::string Finish();

 private:
  std::string TakeComplete(bool at_end);

  const Tokenizer& tokenizer_;
  std::string pending_;
};

// The whole text that these are the tokens of, what is no UTF-8 replaced: of Encode's ids the text
// that it was given, normalized where the tokenizer does that.
std::string DecodeText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids);

}  // namespace hearth
