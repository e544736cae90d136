// The `tokenizer.ggml.*` keys of a model file, read and checked. What every kind of tokenizer
// shares; scores and merges are read by the kind that needs them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

struct Vocabulary {
  std::string where;  // the file, for messages
  std::string kind;   // "llama" or "gpt2"
  std::string pre;
  std::vector<std::string> texts;
  std::vector<TokenType> types;
  SpecialTokens special;
  std::vector<TokenId> end_tokens;  // sorted
  std::vector<bool> is_marker;      // by token: FindUserDefinedMarkers
  std::optional<bool> nfc;          // texts are normalized first, where the file says so or not
  std::vector<std::string> warnings;
};

// "NFC" or "none"; where it is missing the pre-tokenizer says.
inline constexpr char kNormalizerKey[] = "hearth.tokenizer.normalizer";
// Where a space is put before a text: "text" (before each, also one that begins with a space; where
// the key is missing), "word" (unless it begins with a space), "first" (the same, but not after
// markers). tokenizer.ggml.add_space_prefix says whether.
inline constexpr char kSpacePrefixKey[] = "hearth.tokenizer.space_prefix";
// The tokens that a folder's tokenizer appends to texts, where they are not EOS alone.
inline constexpr char kEmbeddingEndKey[] = "hearth.tokenizer.embedding_end_token_ids";

// `default_add_bos` counts where the file does not say. Throws Error(kCorrupt).
Vocabulary ReadVocabulary(const GgufMetadata& metadata, std::string_view kind,
                          bool default_add_bos);

// Error(kCorrupt) about one key of the file.
Error CorruptVocabulary(std::string_view where, std::string_view key, std::string_view expected,
                        std::string_view found);

// The file's name for messages, never empty.
std::string VocabularyWhere(const GgufMetadata& metadata);

// The byte of a token "<0x0A>"; -1 where the text has another form.
int ByteTokenValue(std::string_view text);

}  // namespace hearth
