// Grammars of Harmony's answers.
#pragma once

#include <memory>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools/tool_call_grammar.h"
#include "text/tools/tool_function.h"

namespace hearth {

// Answers after "<|start|>assistant": any number of thoughts (channel analysis), then one message
// on the channel final or one call. What is demanded of an answer is demanded of that last message.
// A comment before it (channel commentary) may come only where the answer may be any text. Null
// where nothing is demanded. Throws as ToolCallGrammar does.
std::shared_ptr<const Grammar> HarmonyGrammar(const std::vector<ToolFunction>& functions,
                                              const ToolGrammarOptions& options,
                                              const Tokenizer& tokenizer,
                                              std::shared_ptr<GrammarMemory> memory = nullptr);

}  // namespace hearth
