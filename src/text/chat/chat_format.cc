#include "text/chat/chat_format.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "text/chat/harmony_prompt.h"
#include "text/chat/piece_list.h"
#include "text/tokenizer/white_space.h"

namespace hearth {
namespace {

struct NamedFormat {
  ChatFormat format;
  const char* name;
};
constexpr std::array<NamedFormat, 6> kFormats = {{{ChatFormat::kChatMl, "chatml"},
                                                  {ChatFormat::kLlama2, "llama-2"},
                                                  {ChatFormat::kLlama3, "llama-3"},
                                                  {ChatFormat::kMistral, "mistral"},
                                                  {ChatFormat::kZephyr, "zephyr"},
                                                  {ChatFormat::kHarmony, "harmony"}}};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

using Messages = std::vector<ChatMessage>;

void CheckRoles(ChatFormat format, const Messages& messages) {
  for (const ChatMessage& message : messages) {
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      throw Error(ErrorCode::kInvalidArgument, std::string("chat format ") + ChatFormatName(format),
                  "role", "system, user or assistant", Printable(message.role));
    }
  }
}

void RenderChatMl(const Messages& messages, bool add_generation_prompt, PieceList* out) {
  for (const ChatMessage& message : messages) {
    out->Marker("<|im_start|>" + message.role + "\n");
    out->Content(message.content);
    out->Marker("<|im_end|>\n");
  }
  if (add_generation_prompt) out->Marker("<|im_start|>assistant\n");
}

void RenderLlama3(const Messages& messages, bool add_generation_prompt, PieceList* out) {
  for (const ChatMessage& message : messages) {
    out->Marker("<|start_header_id|>" + message.role + "<|end_header_id|>\n\n");
    out->Content(Trim(message.content));
    out->Marker("<|eot_id|>");
  }
  if (add_generation_prompt) out->Marker("<|start_header_id|>assistant<|end_header_id|>\n\n");
}

void RenderZephyr(const Messages& messages, bool add_generation_prompt, PieceList* out) {
  for (const ChatMessage& message : messages) {
    out->Marker("<|" + message.role + "|>\n");
    out->Content(message.content);
    out->Marker("</s>\n");
  }
  if (add_generation_prompt) out->Marker("<|assistant|>\n");
}

void AddLlama2System(std::string_view content, PieceList* out) {
  out->Marker("<<SYS>>\n");
  out->Content(content);
  out->Marker("\n<</SYS>>\n\n");
}

// A turn of user and assistant is a sequence of its own: "<s>[INST] question [/INST] answer </s>".
// The system prompt stands inside the first question. "[/INST]" opens the assistant's turn.
void RenderLlama2(const Messages& messages, PieceList* out) {
  bool in_question = false;
  const auto open_question = [&] {
    // The BOS of the first turn is the session's.
    if (!in_question) out->Marker(out->empty() ? "[INST] " : "<s>[INST] ");
    in_question = true;
  };
  for (const ChatMessage& message : messages) {
    if (message.role == "assistant") {
      out->Marker(" ");
      out->Content(Trim(message.content));
      out->Marker(" </s>");
      in_question = false;
    } else if (message.role == "system") {
      open_question();
      AddLlama2System(message.content, out);
    } else {
      const bool after_system = in_question;
      open_question();
      out->Content(after_system ? TrimEnd(message.content) : Trim(message.content));
      out->Marker(" [/INST]");
      in_question = false;
    }
  }
  if (in_question) out->Marker("[/INST]");
}

// Knows no system role of its own; as in Mistral's guide, the prompt precedes the question.
void RenderMistral(const Messages& messages, PieceList* out) {
  bool in_question = false;
  const auto open_question = [&] {
    if (!in_question) out->Marker("[INST] ");
    in_question = true;
  };
  for (const ChatMessage& message : messages) {
    if (message.role == "assistant") {
      out->Content(message.content);
      out->Marker("</s>");
      in_question = false;
    } else if (message.role == "system") {
      open_question();
      out->Content(message.content);
      out->Marker("\n\n");
    } else {
      open_question();
      out->Content(message.content);
      out->Marker(" [/INST]");
      in_question = false;
    }
  }
  if (in_question) out->Marker("[/INST]");
}

// Zephyr writes the role on a line of its own and ends messages with EOS; others that say
// "<|user|>" do neither, or close with a marker of their own. A template may hold the line break
// itself or its Jinja escape.
bool IsZephyr(std::string_view jinja_template) {
  const bool has_role_line =
      Contains(jinja_template, "<|user|>\n") || Contains(jinja_template, "<|user|>\\n");
  return has_role_line && Contains(jinja_template, "<|assistant|>") &&
         Contains(jinja_template, "eos_token") && !Contains(jinja_template, "<|end|>");
}

}  // namespace

const char* ChatFormatName(ChatFormat format) {
  for (const NamedFormat& named : kFormats) {
    if (named.format == format) return named.name;
  }
  return "unknown";
}

std::optional<ChatFormat> ChatFormatFromName(std::string_view name) {
  for (const NamedFormat& named : kFormats) {
    if (name == named.name) return named.format;
  }
  return std::nullopt;
}

ChatFormat ParseChatFormat(std::string_view name) {
  if (const auto format = ChatFormatFromName(name)) return *format;
  throw Error(ErrorCode::kInvalidArgument, Field{"chat_format"}, "name of a format",
              "chatml, llama-2, llama-3, mistral, zephyr or harmony", "'" + Printable(name) + "'");
}

std::optional<ChatFormat> DetectChatFormat(std::string_view jinja_template) {
  // Phi-4 separates role and content with a marker of its own.
  if (Contains(jinja_template, "<|im_start|>") && Contains(jinja_template, "<|im_end|>") &&
      !Contains(jinja_template, "<|im_sep|>")) {
    return ChatFormat::kChatMl;
  }
  if (Contains(jinja_template, "<|start_header_id|>") && Contains(jinja_template, "<|eot_id|>")) {
    return ChatFormat::kLlama3;
  }
  if (Contains(jinja_template, "[INST]") && Contains(jinja_template, "[/INST]")) {
    return Contains(jinja_template, "<<SYS>>") ? ChatFormat::kLlama2 : ChatFormat::kMistral;
  }
  if (Contains(jinja_template, kHarmonyStart) && Contains(jinja_template, kHarmonyChannel) &&
      Contains(jinja_template, kHarmonyMessage)) {
    return ChatFormat::kHarmony;
  }
  if (IsZephyr(jinja_template)) return ChatFormat::kZephyr;
  return std::nullopt;
}

std::vector<ChatPiece> RenderChat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                  bool add_generation_prompt) {
  CheckRoles(format, messages);
  PieceList pieces;
  switch (format) {
    case ChatFormat::kChatMl:
      RenderChatMl(messages, add_generation_prompt, &pieces);
      break;
    case ChatFormat::kLlama2:
      RenderLlama2(messages, &pieces);
      break;
    case ChatFormat::kLlama3:
      RenderLlama3(messages, add_generation_prompt, &pieces);
      break;
    case ChatFormat::kMistral:
      RenderMistral(messages, &pieces);
      break;
    case ChatFormat::kZephyr:
      RenderZephyr(messages, add_generation_prompt, &pieces);
      break;
    case ChatFormat::kHarmony:
      return RenderHarmonyChat(messages, add_generation_prompt, {}, {});
  }
  return pieces.Take();
}

// Markers that an answer never contains. "</s>" is not among them: it is also HTML, and models
// that end a turn with it have it as a token.
std::vector<std::string> ChatStopStrings(ChatFormat format) {
  switch (format) {
    case ChatFormat::kChatMl:
      return {"<|im_end|>", "<|im_start|>"};
    case ChatFormat::kLlama2:
    case ChatFormat::kMistral:
      return {"[INST]"};
    case ChatFormat::kLlama3:
      return {"<|eot_id|>", "<|start_header_id|>"};
    case ChatFormat::kZephyr:
      return {"<|user|>", "<|system|>"};
    case ChatFormat::kHarmony:  // somebody else's message
      return {"<|start|>user", "<|start|>system", "<|start|>developer"};
  }
  return {};
}

}  // namespace hearth
