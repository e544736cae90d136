// A text as the tokens that a session starts from.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/load/model.h"

namespace hearth {

// No text of so many bytes has fewer tokens. 0 for a vocabulary that drops or joins unknown bytes.
// Quick: so that a text which cannot fit is refused before its tokens fill the memory.
int64_t LeastTokens(const Tokenizer& tokenizer, size_t text_bytes);

// The error of a text, or of messages, with more tokens than the context holds. what: "prompt" or
// "messages"; found: how many tokens they have, in words. Clients look for "This model's maximum
// context length is N tokens", as the OpenAI API says it, and shorten what they send.
Error ContextFull(std::string_view what, int64_t context, std::string_view found);

// The tokens of a completion's prompt: BOS where the model begins texts with it, and where there
// would be nothing else; once, where options let the text begin with it. Throws Error(kContextFull)
// where the text cannot fit into `context`, and Error(kInvalidArgument) for an empty one that no
// BOS can start.
std::vector<TokenId> EncodePrompt(const Model& model, std::string_view text, int64_t context,
                                  EncodeOptions options = {});

// The tokens of a text that is embedded: the same, and SpecialTokens::embedding_end. Throws as
// EncodePrompt does.
std::vector<TokenId> EncodeForEmbedding(const Model& model, std::string_view text, int64_t context);

}  // namespace hearth
