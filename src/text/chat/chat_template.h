// How the conversations of a model are written: by its own template, or in a built-in format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "text/chat/chat_format.h"
#include "text/chat/thinking.h"
#include "text/chat/tool_prompt.h"
#include "text/jinja/template.h"
#include "text/jinja/values/memory_meter.h"
#include "text/tokenizer/chat_piece.h"
#include "text/tools/tool_syntax.h"

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
  // What the system says a template without that role gets as the user's words.
  // variables: a JSON object of what else the template may ask for ("enable_thinking"), empty for
  // none; formats ask for nothing.
  // Throws Error(kInvalidArgument) where the template fails or refuses the conversation, naming a
  // call whose arguments it cannot take, or takes more than 64 MiB, and for variables that are no
  // object or have names of those that are set here. may_hold is asked before more memory is taken
  // than it has granted; where it refuses, Error(kOutOfBudget).
  std::vector<ChatPiece> Render(const std::vector<ChatMessage>& messages,
                                bool add_generation_prompt,
                                const std::vector<ToolFunction>& functions = {},
                                std::string_view variables = {},
                                const jinja::MayHoldFn& may_hold = {}) const;

  // The same for what a request carries: a JSON object with "messages" (their content may be a list
  // of parts, they may have tool calls), "tools", and whatever else the template asks for. As in
  // transformers, "tools" and "documents" are none where they are not given, and
  // "add_generation_prompt" is false. Formats take messages of texts only: others are
  // Error(kUnsupported).
  std::vector<ChatPiece> RenderJson(std::string_view request) const;

  // How the answer to a conversation may think, which Render wrote as these pieces; nothing where
  // it does not.
  std::optional<Thinking> ThinkingOf(const std::vector<ChatPiece>& pieces) const {
    return thinking_ ? ThinkingAfter(*thinking_, pieces) : std::nullopt;
  }

  // Answers are messages of Harmony's channels.
  bool has_channels() const { return thinking_ && thinking_->has_channels; }

  // How a model that was given functions calls them.
  const ToolSyntax& tool_syntax() const { return knows_tools_ ? *syntax_ : GenericToolSyntax(); }

  // Texts at which generation must stop even when the model emits no end token.
  std::vector<std::string> StopStrings() const;

 private:
  ChatTemplate() = default;
  std::vector<ChatPiece> RenderContext(jinja::Context context, bool for_tools) const;
  // What Render was given beside the messages.
  struct Rest {
    bool add_generation_prompt = false;
    const std::vector<ToolFunction>& functions;
    std::string_view variables;
  };
  std::vector<ChatPiece> RenderMetered(const std::vector<ChatMessage>& messages,
                                       const Rest& rest) const;
  std::vector<ChatPiece> RenderPlain(const std::vector<ChatMessage>& messages,
                                     const Rest& rest) const;
  std::vector<ChatPiece> RenderMessages(const std::vector<ChatMessage>& messages, const Rest& rest,
                                        bool for_tools, const ToolMessageStyle& style) const;
  std::vector<ChatPiece> RenderFolded(const std::vector<ChatMessage>& messages, const Rest& rest,
                                      bool for_tools) const;
  std::vector<ChatPiece> RenderTools(const std::vector<ChatMessage>& messages,
                                     const Rest& rest) const;
  std::vector<ChatPiece> RenderKnownTools(const std::vector<ChatMessage>& messages,
                                          const Rest& rest) const;
  std::vector<ChatPiece> RenderInWords(const std::vector<ChatMessage>& messages,
                                       const Rest& rest) const;
  void LearnToolStyle();
  void LearnSystemRole();

  std::optional<ChatFormat> format_;  // of a template: the one that it looks like
  std::optional<jinja::Template> own_;
  std::optional<jinja::Template> tool_use_;
  SpecialTexts special_;
  const ToolSyntax* syntax_ = nullptr;  // what the template for tools teaches
  bool knows_tools_ = false;            // and writes: else syntax_ means nothing
  ToolMessageStyle style_;
  std::optional<Thinking> thinking_;  // the marks that its template knows
  bool knows_system_ = true;          // a system's message, as the first one
};

}  // namespace hearth
