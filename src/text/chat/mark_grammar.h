// Marks of answers in grammars.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// The control token of the model that is written so; -1 where there is none.
TokenId ControlMark(const Tokenizer& tokenizer, std::string_view mark);

// How the mark stands in a grammar: as that token (ControlTokenBytes), else as its text.
std::string MarkBytes(const Tokenizer& tokenizer, std::string_view mark);

// Any text up to the first `mark` (as MarkBytes says), then `next`. Of control tokens only the mark
// may come.
GrammarBuilder::Symbol TextUpTo(GrammarBuilder& builder, const std::string& mark,
                                GrammarBuilder::Symbol next);

// Any text without control tokens.
GrammarBuilder::Symbol AnyText(GrammarBuilder& builder);

}  // namespace hearth
