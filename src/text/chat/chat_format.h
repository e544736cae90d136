// Built-in chat formats, for models without a template of their own (chat_template.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/chat_piece.h"

namespace hearth {

enum class ChatFormat { kChatMl, kLlama2, kLlama3, kMistral, kZephyr, kHarmony };

const char* ChatFormatName(ChatFormat format);  // "chatml", "llama-2", "llama-3", ...
std::optional<ChatFormat> ChatFormatFromName(std::string_view name);
// The same; throws Error(kInvalidArgument) of chat_format for a name that is not one.
ChatFormat ParseChatFormat(std::string_view name);

// Recognizes the format of a Jinja chat template by its markers; nothing where none fits. Says what
// such a model's answers stop at (ChatStopStrings), and what a reader may expect.
std::optional<ChatFormat> DetectChatFormat(std::string_view jinja_template);

// What an assistant called.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool: the call that this is the result of
  std::string reasoning = {};  // of an assistant: what it thought, for templates that show that
};

// The conversation as pieces, ending with the opening of the assistant's turn where
// `add_generation_prompt`. BOS is not part of it (EncodeChat adds it).
// Throws Error(kInvalidArgument) for a role that the format does not know. Only Harmony writes
// calls of tools; for others tool_prompt.h puts them into contents.
std::vector<ChatPiece> RenderChat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                  bool add_generation_prompt);

// Texts at which generation must stop even when the model emits no end token.
std::vector<std::string> ChatStopStrings(ChatFormat format);

}  // namespace hearth
