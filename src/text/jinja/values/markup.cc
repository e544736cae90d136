#include "text/jinja/values/markup.h"

#include <utility>
#include <vector>

#include "text/jinja/values/formatting.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

const char* EntityOrNull(char32_t c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '\'':
      return "&#39;";
    case '"':
      return "&#34;";
    default:
      return nullptr;
  }
}

// Texts that a method gives, in lists and tuples too, as Markup.
Value AsMarkup(Runtime& runtime, const Value& value) {
  if (value.Is(Kind::kString)) return runtime.Markup(value.text());
  if (!IsSequence(value.kind())) return value;
  Values items;
  for (const Value& item : value.items()) items.push_back(AsMarkup(runtime, item));
  return value.Is(Kind::kList) ? runtime.List(std::move(items)) : runtime.Tuple(std::move(items));
}

// Escapes the argument at `index`, where there is one.
void EscapeArgument(Runtime& runtime, size_t index, Arguments* arguments) {
  if (index >= arguments->positional.size()) return;
  Value& argument = arguments->positional[index];
  if (argument.Is(Kind::kString)) argument = runtime.String(EscapedStr(runtime, argument));
}

Arguments EscapedItems(Runtime& runtime, const Arguments& arguments) {
  RefuseKeywords("join", arguments);
  const Parameters parameters("join", arguments, {"iterable"}, 1);
  Values items;
  for (const Value& item : Items(runtime, parameters[0])) {
    items.push_back(runtime.String(EscapedStr(runtime, item)));
  }
  Arguments escaped;
  escaped.positional = {runtime.List(std::move(items))};
  return escaped;
}

}  // namespace

Text EscapeHtml(const Text& text) {
  Text out;
  for (const char32_t c : text) {
    const char* entity = EntityOrNull(Plain(c));
    if (entity == nullptr) {
      out += c;
      continue;
    }
    for (; *entity != 0; ++entity) out += MarkedLike(static_cast<unsigned char>(*entity), c);
  }
  return out;
}

Text EscapedStr(Runtime& runtime, const Value& value) {
  if (IsMarkup(value)) return value.text();
  Text text = EscapeHtml(Str(runtime, value));
  runtime.CheckSize(static_cast<Int>(text.size()));
  return text;
}

Value TextLike(Runtime& runtime, const Value& like, Text text) {
  return IsMarkup(like) ? runtime.Markup(std::move(text)) : runtime.String(std::move(text));
}

Value CallOnMarkup(Runtime& runtime, MethodFn method, std::string_view name, const Value& self,
                   const Arguments& arguments) {
  if (name == "format" || name == "format_map") {
    const Arguments named = name == "format" ? arguments : NamedByMapping(arguments);
    return runtime.Markup(FormatBraces(runtime, self.text(), named, /*escapes=*/true).text());
  }
  Arguments escaped = name == "join" ? EscapedItems(runtime, arguments) : arguments;
  // The new text of a replacement, and the character that fills up.
  if (name == "replace" || name == "center" || name == "ljust" || name == "rjust") {
    EscapeArgument(runtime, 1, &escaped);
  }
  return AsMarkup(runtime, method(runtime, self, escaped));
}

}  // namespace hearth::jinja
