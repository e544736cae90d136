// Grammars of answers that call tools.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/json_grammar_parts.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools/tool_function.h"
#include "text/tools/tool_syntax.h"

namespace hearth {

struct ToolGrammarOptions {
  bool must_call =
      false;  // the answer is a call, or several; else it may be text, and end in calls
  bool takes_many = true;  // else one call at most
  // Where it may be text: only documents of this JSON Schema (of an empty one: any JSON object).
  std::optional<std::string> answer_schema;
};

// Arguments keep to the schemas of all functions where a call is forced, else to those of strict
// functions; of others they are any object. So are those of a function that is not strict and whose
// schema no grammar can say. Throws as JsonSchemaGrammar does, naming the function.
// Markers that are control tokens of the model stand as such (ControlTokenBytes).
std::shared_ptr<const Grammar> ToolCallGrammar(const ToolSyntax& syntax,
                                               const std::vector<ToolFunction>& functions,
                                               const ToolGrammarOptions& options,
                                               const Tokenizer& tokenizer,
                                               std::shared_ptr<GrammarMemory> memory = nullptr);

// A JSON object of a function's arguments, as a part of a larger grammar: the same for other ways
// to write calls. Throws the same.
Grammar::Symbol AddArguments(GrammarBuilder& builder, JsonGrammarParts& parts,
                             const ToolFunction& function, const ToolGrammarOptions& options);

// The control tokens of the model that its calls are marked with: an answer must show their texts.
std::vector<TokenId> ToolMarkerTokens(const ToolSyntax& syntax, const Tokenizer& tokenizer);

}  // namespace hearth
