// Reads answers: tells what a model says from what it thinks and what it calls.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/thinking.h"
#include "text/tools/call_body.h"
#include "text/tools/tool_call_reader.h"
#include "text/tools/tool_syntax.h"

namespace hearth {

// How the answer to a conversation is written.
struct AnswerForm {
  std::optional<Thinking> thinking;                    // nothing: it has no thoughts
  const ToolSyntax* syntax = nullptr;                  // of calls; null: nothing may be called
  std::shared_ptr<const CallableFunctions> functions;  // that may be called, with `syntax`
};

// The pieces in which the answer comes change nothing of the sum. One thread.
class AnswerReader {
 public:
  // The syntax must outlive it.
  explicit AnswerReader(const AnswerForm& form);
  AnswerReader(AnswerReader&&) noexcept;
  AnswerReader& operator=(AnswerReader&&) noexcept;
  ~AnswerReader();

  // What the next piece adds.
  std::vector<AnswerPart> Push(std::string_view text);
  // The answer has ended, or was cut off: what was held back.
  std::vector<AnswerPart> Finish();
  // It called something, and the arguments of the last call are whole.
  bool ends_in_calls() const;

  class Reading;  // one for each way to write answers

 private:
  std::unique_ptr<Reading> reading_;
};

// Control tokens whose texts the reader must see: marks of calls and of thoughts.
std::vector<TokenId> VisibleTokens(const AnswerForm& form, const Tokenizer& tokenizer);

}  // namespace hearth
