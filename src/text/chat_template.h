// How the conversations of a model are written: by its own template, or in a built-in format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "text/chat_format.h"
#include "text/chat_piece.h"
#include "text/jinja/memory_meter.h"
#include "text/jinja/template.h"
#include "text/tool_prompt.h"
#include "text/tool_syntax.h"

namespace hearth {

// Texts of a model's special tokens, for templates that write them.
struct SpecialTexts {
  std::optional<std::string> bos;  // nothing where the model has none
  std::optional<std::string> eos;

  static SpecialTexts Of(const Tokenizer& tokenizer);
  // As bos_token and eos_token, trusted, unless the context has them already.
  void AddTo(jinja::Context& context) const;
};

// Immutable and thread-safe.
class ChatTemplate {
 public:
  // The model's own (`tokenizer.chat_template`; with tools `tokenizer.chat_template.tool_use`,
  // where that is there); nothing where it has none. Throws Error(kInvalidArgument) for one that is
  // not valid.
  static std::optional<ChatTemplate> FromModel(const GgufMetadata& metadata,
                                               const Tokenizer& tokenizer);
  static ChatTemplate BuiltIn(ChatFormat format);

  // "its own template", "chatml format".
  std::string Describe() const;

  // The conversation as pieces, ending with the opening of the assistant's turn where
  // `add_generation_prompt`. A template of a model may write BOS; a format leaves it to EncodeChat.
  // Functions that the model may call, calls and their results are written as the model's template
  // does where it knows tools and teaches a known syntax of calls, else in words (tool_prompt.h).
  // Throws Error(kInvalidArgument) where the template fails or refuses the conversation, or takes
  // more than 64 MiB. may_hold is asked before more memory is taken than it has granted; where it
  // refuses, Error(kOutOfBudget).
  std::vector<ChatPiece> Render(const std::vector<ChatMessage>& messages,
                                bool add_generation_prompt,
                                const std::vector<ToolFunction>& functions = {},
                                const jinja::MayHoldFn& may_hold = {}) const;

  // The same for what a request carries: a JSON object with "messages" (their content may be a list
  // of parts, they may have tool calls), "tools", and whatever else the template asks for. As in
  // transformers, "tools" and "documents" are none where they are not given, and
  // "add_generation_prompt" is false. Formats take messages of texts only: others are
  // Error(kUnsupported).
  std::vector<ChatPiece> RenderJson(std::string_view request) const;

  // How a model that was given functions calls them.
  const ToolSyntax& tool_syntax() const { return knows_tools_ ? *syntax_ : GenericToolSyntax(); }

  // Texts at which generation must stop even when the model emits no end token.
  std::vector<std::string> StopStrings() const;

 private:
  ChatTemplate() = default;
  std::vector<ChatPiece> RenderMetered(const std::vector<ChatMessage>& messages,
                                       bool add_generation_prompt,
                                       const std::vector<ToolFunction>& functions) const;
  std::vector<ChatPiece> RenderContext(jinja::Context context, bool for_tools) const;
  std::vector<ChatPiece> RenderPlain(const std::vector<ChatMessage>& messages,
                                     bool add_generation_prompt) const;
  std::vector<ChatPiece> RenderKnownTools(const std::vector<ChatMessage>& messages,
                                          bool add_generation_prompt,
                                          const std::vector<ToolFunction>& functions,
                                          const ToolMessageStyle& style) const;
  std::vector<ChatPiece> RenderInWords(const std::vector<ChatMessage>& messages,
                                       bool add_generation_prompt,
                                       const std::vector<ToolFunction>& functions) const;
  void LearnToolStyle();

  std::optional<ChatFormat> format_;  // of a template: the one that it looks like
  std::optional<jinja::Template> own_;
  std::optional<jinja::Template> tool_use_;
  SpecialTexts special_;
  const ToolSyntax* syntax_ = nullptr;  // what the template for tools teaches
  bool knows_tools_ = false;            // and writes: else syntax_ means nothing
  ToolMessageStyle style_;
};

}  // namespace hearth
