// Markup, as markupsafe has it: a text that "safe" or "escape" made. What is joined to it with an
// operator or one of its methods is escaped first; "~", filters that build texts and what is
// written out overlook it, since chat templates are rendered without autoescape.
#pragma once

#include "text/jinja/values/methods.h"
#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

// The five characters of HTML as entities, each marked as the character was.
Text EscapeHtml(const Text& text);

// What stands for a value beside Markup: Markup as it is, others written out and escaped.
Text EscapedStr(Runtime& runtime, const Value& value);

// `text` as Markup where `like` is.
Value TextLike(Runtime& runtime, const Value& like, Text text);

// A method of str, called on Markup.
Value CallOnMarkup(Runtime& runtime, MethodFn method, std::string_view name, const Value& self,
                   const Arguments& arguments);

}  // namespace hearth::jinja
