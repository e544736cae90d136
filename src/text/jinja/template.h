// Chat templates: the Jinja that Hugging Face models carry, rendered as transformers renders it.
//
// Start here. The language is Jinja2 3.1.6 in the sandbox of transformers' apply_chat_template:
// trim_blocks, lstrip_blocks, break and continue, {% generation %}, raise_exception, strftime_now,
// and a tojson that keeps order and does not escape. Not there: other templates (extends, include,
// import), autoescape, the filters pprint, random, striptags, urlize and wordwrap, and
// integers of more than 38 digits; what is missing is refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/context.h"
#include "text/jinja/values/limits.h"
#include "text/tokenizer/chat_piece.h"

namespace hearth::jinja {

struct TemplateAst;

// Immutable and thread-safe.
class Template {
 public:
  // `name` begins messages: the file that the source comes from. Throws Error(kInvalidArgument)
  // with the line for a template that is not valid.
  Template(std::string_view source, std::string name);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // The text that the template makes of the context, neighbours of the same trust joined. Every
  // character is trusted that the template or a trusted text of the context wrote, and no other;
  // what lists and dicts are written with (brackets, commas, keys) is not. Throws
  // Error(kInvalidArgument) with the line where the template fails, raises, or passes a limit, and
  // Error(kOutOfBudget) where the thread's meter grants no more memory (memory_meter.h). Where it
  // has none, limits.max_bytes counts.
  std::vector<ChatPiece> Render(const Context& context, const Limits& limits = {}) const;

 private:
  std::string name_;
  std::unique_ptr<const TemplateAst> tree_;
};

}  // namespace hearth::jinja
