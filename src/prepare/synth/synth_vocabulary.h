// A made-up vocabulary of any size for models without one of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/gguf.h"

namespace hearth {

// SentencePiece-style with byte fallback (`tokenizer.ggml.model` = llama), so that any text can be
// encoded: <unk>, <s>, </s>, 256 byte tokens, the word mark U+2581, the printable ASCII characters,
// syllables ("ba"), common short English pieces, then made-up words of syllables ("kobi"), each
// with and without the word mark, up to `vocab_size` (at least kMinVocabSize, at most 2^24). All
// texts differ, and merging reaches every made-up word.
// Sets the tokenizer.ggml.* keys, the same for the same size.
void AddSyntheticVocabulary(int64_t vocab_size, GgufMetadata* metadata);

}  // namespace hearth
