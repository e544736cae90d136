// Tools between the interface and the chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hearth/hearth.hpp"
#include "text/chat/answer_reader.h"
#include "text/chat/chat_format.h"
#include "text/chat/thinking.h"
#include "text/chat/tool_prompt.h"
#include "text/tools/call_body.h"
#include "text/tools/tool_call_grammar.h"
#include "text/tools/tool_syntax.h"

namespace hearth::api {

struct ToolFormat::Impl {
  const ToolSyntax& syntax;
  std::vector<ToolFunction> functions;  // that may be called
  bool must_call = false;
  bool parallel = true;
  std::shared_ptr<const CallableFunctions> callable;  // the same functions, for readers

  // What answers are constrained to; null where nothing is demanded of them. Of Harmony's channels
  // HarmonyGrammar says it.
  std::shared_ptr<const Grammar> MakeGrammar(const std::optional<std::string>& answer_schema,
                                             const Tokenizer& tokenizer,
                                             std::shared_ptr<GrammarMemory> memory) const;
  ToolGrammarOptions GrammarOptions(const std::optional<std::string>& answer_schema) const;
};

// Throws hearth::Error(kInvalidArgument) for names that are empty or twice there, and for a
// function to be called that is none of the tools.
std::vector<ToolFunction> ToEngine(const ToolOptions& options);
std::shared_ptr<const ToolFormat> MakeToolFormat(const ToolOptions& options,
                                                 std::vector<ToolFunction> functions,
                                                 const ToolSyntax& syntax);

std::vector<hearth::ChatMessage> ToEngine(const std::vector<ChatMessage>& messages);
hearth::Thinking ToEngine(const Thinking& thinking);

// How an answer to a prompt of these is written. The tools must outlive it.
AnswerForm FormOf(const std::shared_ptr<const ToolFormat>& tools,
                  const std::optional<Thinking>& thinking);

}  // namespace hearth::api
