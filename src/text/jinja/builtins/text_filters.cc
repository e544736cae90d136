// Filters on texts; other values are turned into texts first.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/formatting.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"
#include "text/jinja/values/strings.h"

namespace hearth::jinja {
namespace {

template <Text (*kFunction)(TextView)>
Value MapFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("this filter", arguments, {});
  const Text text = Str(runtime, value);
  runtime.Spend(text.size() / 4);
  return TextLike(runtime, value, kFunction(text));
}

// A word of Jinja's title begins after a space, a hyphen or an opening bracket.
Text TitleParts(TextView text) {
  const auto separates = [](char32_t c) {
    const char32_t plain = Plain(c);
    return plain == '-' || plain == '(' || plain == '{' || plain == '[' || plain == '<' ||
           IsSpace(c);
  };
  Text out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && separates(text[end]) == separates(text[at])) ++end;
    out += Upper(text.substr(at, 1)) + Lower(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return out;
}

// Joined from parts, so that it is not Markup.
Value TitleFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("title", arguments, {});
  const Text text = Str(runtime, value);
  runtime.Spend(text.size() / 4);
  return runtime.String(TitleParts(text));
}

Value TrimFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("trim", arguments, {"chars"});
  const Text text = Str(runtime, value);
  const Text* characters = parameters.IsSet(0) ? &parameters.String(0) : nullptr;
  if (characters != nullptr) runtime.Spend(characters->size() * (text.size() + 1) / 16);
  return TextLike(runtime, value, Strip(text, Side::kBoth, characters));
}

Value ReplaceFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"}, 2);
  const Int count = parameters.IsSet(2) ? parameters.Integer(2, -1) : -1;
  return runtime.String(Replace(runtime, Str(runtime, value), Str(runtime, parameters[0]),
                                Str(runtime, parameters[1]), count));
}

Value CenterFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("center", arguments, {"width"});
  const Int width = parameters.Integer(0, 80);
  runtime.CheckSize(width);
  return TextLike(runtime, value, Center(Str(runtime, value), width, Trusted(' ')));
}

Value IndentFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("indent", arguments, {"width", "first", "blank"});
  if (value.Is(Kind::kUndefined)) FailUndefined(value);
  if (!value.Is(Kind::kString)) throw Failure("indent needs a str, not a " + TypeName(value));
  Text indent;
  if (parameters.Has(0) && parameters[0].Is(Kind::kString)) {
    indent = parameters[0].text();
  } else {
    const Int width = parameters.Integer(0, 4);
    runtime.CheckSize(width);
    indent = Text(static_cast<size_t>(std::max<Int>(width, 0)), Trusted(' '));
  }
  const bool blank = parameters.True(runtime, 2, false);
  const Text line_break = Own("\n");
  const std::vector<Text> lines = SplitLines(value.text() + line_break, false);
  runtime.CheckSize(static_cast<Int>(value.text().size()) +
                    static_cast<Int>(lines.size()) * static_cast<Int>(indent.size() + 1));
  Text out = parameters.True(runtime, 1, false) ? indent : Text();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += line_break;
    if (i > 0 && (blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return TextLike(runtime, value, std::move(out));
}

Value TruncateFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Int length = parameters.Integer(0, 255);
  const Text end = parameters.Has(2) ? parameters.String(2) : Own("...");
  const Int leeway = parameters.IsSet(3) ? parameters.Integer(3, 5) : 5;
  const auto end_size = static_cast<Int>(end.size());
  if (length < end_size || leeway < 0) throw Failure("truncate needs a length that holds its end");
  if (Length(runtime, value) <= length + leeway) return value;
  if (!value.Is(Kind::kString)) throw Failure("truncate needs a str, not a " + TypeName(value));
  Text cut = value.text().substr(0, static_cast<size_t>(length - end_size));
  if (!parameters.True(runtime, 1, false)) {
    const size_t space = cut.rfind(' ');
    if (space != Text::npos) cut.resize(space);
  }
  if (IsMarkup(value)) return runtime.Markup(cut + EscapeHtml(end));
  return runtime.String(cut + end);
}

Value WordCountFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("wordcount", arguments, {});
  const Text text = Str(runtime, value);
  Int words = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsWordCharacter(text[i]) && (i == 0 || !IsWordCharacter(text[i - 1]))) ++words;
  }
  return Value::Integer(words);
}

Value FormatFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    throw Failure("format takes values by place or by name, not both");
  }
  const Text text = Str(runtime, value);
  if (arguments.keywords.empty()) {
    const Value values = runtime.Tuple(arguments.positional);
    return TextLike(runtime, value, FormatPercent(runtime, text, values, IsMarkup(value)).text());
  }
  auto* dict = runtime.heap().New<DictObject>();
  for (const auto& [name, argument] : arguments.keywords) {
    dict->SetText(runtime.String(name), argument);
  }
  return TextLike(runtime, value,
                  FormatPercent(runtime, text, Value(dict), IsMarkup(value)).text());
}

Value StringFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("string", arguments, {});
  return AsString(runtime, value);
}

Value JoinFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("join", arguments, {"d", "attribute"});
  const Text separator = parameters.Has(0) ? Str(runtime, parameters[0]) : Text();
  const AttributePath path(runtime, parameters.Or(1, Value::None()), false);
  Text out;
  IteratorObject& items = Iterate(runtime, value);
  bool first = true;
  while (const auto item = items.Next(runtime)) {
    const Text text = Str(runtime, path.Get(runtime, *item));
    runtime.CheckSize(static_cast<Int>(out.size() + separator.size() + text.size()));
    if (!first) out += separator;
    first = false;
    out += text;
  }
  return runtime.String(std::move(out));
}

constexpr NamedFilter kTextFilters[] = {
    {"capitalize", MapFilter<Capitalize>},
    {"center", CenterFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"join", JoinFilter},
    {"lower", MapFilter<Lower>},
    {"replace", ReplaceFilter},
    {"string", StringFilter},
    {"title", TitleFilter},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", MapFilter<Upper>},
    {"wordcount", WordCountFilter},
};

}  // namespace

Value AsString(Runtime& runtime, const Value& value) {
  return value.Is(Kind::kString) ? value : runtime.String(Str(runtime, value));
}

FilterFn FindTextFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTextFilters), std::end(kTextFilters),
                                   [&](const NamedFilter& filter) { return filter.name == name; });
  return found == std::end(kTextFilters) ? nullptr : found->function;
}

}  // namespace hearth::jinja
