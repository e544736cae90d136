// Grammars of arguments that a model writes one by one (ToolSyntax::has_body).
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/grammar.h"
#include "text/grammar/json_grammar_parts.h"
#include "text/tools/tool_function.h"
#include "text/tools/tool_parameters.h"
#include "text/tools/tool_syntax.h"

namespace hearth {

// The marks of a syntax as a grammar has them: with control tokens as ControlTokenBytes.
struct ArgumentMarks {
  std::string key_begin, key_end, value_begin, value_end;
};

class ArgumentGrammar {
 public:
  using Symbol = Grammar::Symbol;
  using Sequence = GrammarBuilder::Sequence;

  ArgumentGrammar(GrammarBuilder& builder, JsonGrammarParts& parts, const ToolSyntax& syntax,
                  ArgumentMarks marks)
      : builder_(builder), parts_(parts), syntax_(syntax), marks_(std::move(marks)) {}

  // All arguments of a call, in the order of "properties"; those that are not required may be left
  // out. Throws as AddJsonSchema does, and Error(kUnsupported) for what can only be said of quoted
  // texts.
  Symbol Of(const ToolFunction& function);
  // Any arguments.
  Symbol Any();

 private:
  Symbol TaggedValue(const ToolParameter& parameter, const SchemaJson& root, Symbol json);
  Sequence Tagged(const Sequence& key, Symbol value_and_end);
  Symbol TextUntil(std::string_view mark);
  Symbol InOrder(const std::vector<std::pair<Sequence, bool>>& members);
  void Append(Sequence& sequence, std::string_view text);
  Symbol Key();

  GrammarBuilder& builder_;
  JsonGrammarParts& parts_;
  const ToolSyntax& syntax_;
  const ArgumentMarks marks_;
};

}  // namespace hearth
