// Built-in chat formats, chosen from a model's chat template by what the template contains.
// (The interpreter for arbitrary templates is a later part of Hearth.)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace hearth {

enum class ChatFormat { kChatMl, kLlama2, kLlama3, kMistral, kZephyr };

const char* ChatFormatName(ChatFormat format);  // "chatml", "llama-2", "llama-3", ...
std::optional<ChatFormat> ChatFormatFromName(std::string_view name);

// Recognizes the format of a Jinja chat template by its markers; nothing where none fits.
std::optional<ChatFormat> DetectChatFormat(std::string_view jinja_template);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A piece of a rendered conversation. Markers are encoded with special tokens recognized, content
// without, so that what a user types can never become a special token.
struct ChatPiece {
  std::string text;
  bool is_marker = false;
};

// The conversation as pieces, ending with the opening of the assistant's turn where
// `add_generation_prompt`. BOS is not part of it (the session adds it).
// Throws Error(kInvalidArgument) for a role that the format does not know.
std::vector<ChatPiece> RenderChat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                  bool add_generation_prompt);

// Token ids of the pieces, without BOS.
std::vector<TokenId> EncodeChat(const Tokenizer& tokenizer, const std::vector<ChatPiece>& pieces);

// Texts at which generation must stop even when the model emits no end token.
std::vector<std::string> ChatStopStrings(ChatFormat format);

}  // namespace hearth
