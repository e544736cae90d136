// format.format(values).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/values/failure.h"
#include "text/jinja/values/formatting.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/number_format.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"

namespace hearth::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  Text Run(const Text& format, int nesting) {
    if (nesting > 2) throw Failure("a format string is nested too deeply");
    Text out;
    for (size_t at = 0; at < format.size();) {
      const char32_t c = Plain(format[at]);
      const bool doubled = at + 1 < format.size() && Plain(format[at + 1]) == c;
      if ((c == '{' || c == '}') && doubled) {
        out += format[at];
        at += 2;
      } else if (c == '{') {
        const size_t end = FieldEnd(format, at);
        out += Field(format.substr(at + 1, end - at - 1), nesting);
        at = end + 1;
      } else if (c == '}') {
        throw Failure("a format string has a '}' without a '{'");
      } else {
        out += format[at++];
      }
    }
    return out;
  }

 private:
  static size_t FieldEnd(const Text& format, size_t at) {
    int open = 0;
    bool in_item = false;
    for (; at < format.size(); ++at) {
      const char32_t c = Plain(format[at]);
      if (in_item) {
        in_item = c != ']';
      } else if (c == '[' && open == 1) {
        in_item = true;
      } else if (c == '{') {
        ++open;
      } else if (c == '}' && --open == 0) {
        return at;
      }
    }
    throw Failure("a format string has a '{' without a '}'");
  }

  static bool IsIndex(const Text& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char32_t c) {
      return Plain(c) >= '0' && Plain(c) <= '9';
    });
  }

  Value First(const Text& name) {
    if (!name.empty() && !IsIndex(name)) {
      for (const auto& [keyword, value] : arguments_.keywords) {
        if (keyword == name) return value;
      }
      throw Failure("a format string names a value that is not there");
    }
    const bool automatic = name.empty();
    if (automatic ? next_ < 0 : next_ > 0) {
      throw Failure("a format string numbers some of its fields only");
    }
    Int index = 0;
    if (automatic) {
      index = next_++;
    } else {
      index = ParseInt(name, 10).value_or(Int{1} << 62);
      next_ = -1;
    }
    if (index >= static_cast<Int>(arguments_.positional.size())) {
      throw Failure("a format string has too few values");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  // "name.attribute[key]"
  Value Lookup(const Text& path) {
    size_t at = std::min(path.find('.'), path.find('['));
    Value value = First(path.substr(0, at));
    while (at < path.size()) {
      if (Plain(path[at]) == '.') {
        const size_t end = std::min({path.find('.', at + 1), path.find('[', at + 1), path.size()});
        value = GetAttribute(runtime_, value, path.substr(at + 1, end - at - 1));
        at = end;
      } else {
        const size_t end = path.find(']', at);
        if (Plain(path[at]) != '[' || end == Text::npos) {
          throw Failure("a format string has a field that is not valid");
        }
        const Text key = path.substr(at + 1, end - at - 1);
        const Value index =
            IsIndex(key) ? Value::Integer(ParseInt(key, 10).value_or(0)) : runtime_.String(key);
        value = GetItem(runtime_, value, index);
        at = end + 1;
      }
    }
    return value;
  }

  Text Field(const Text& field, int nesting) {
    size_t path_end = 0;
    bool in_item = false;
    for (; path_end < field.size(); ++path_end) {
      const char32_t c = Plain(field[path_end]);
      if (c == '[') in_item = true;
      if (c == ']') in_item = false;
      if (!in_item && (c == '!' || c == ':')) break;
    }
    const Value value = Lookup(field.substr(0, path_end));
    char conversion = 0;
    if (path_end < field.size() && Plain(field[path_end]) == '!') {
      conversion =
          path_end + 1 < field.size() ? static_cast<char>(Plain(field[path_end + 1])) : '?';
      path_end += 2;
    }
    Text spec;
    if (path_end < field.size()) {
      if (Plain(field[path_end]) != ':')
        throw Failure("a format string has a field that is not valid");
      spec = Run(field.substr(path_end + 1), nesting + 1);
    }
    const Value converted = Converted(value, conversion);
    if (escapes_ && IsMarkup(converted)) {
      if (!spec.empty()) FailFit();
      return converted.text();
    }
    const Text text = spec.empty() ? Str(runtime_, converted) : Format(converted, spec);
    return escapes_ ? EscapeHtml(text) : text;
  }

  Value Converted(const Value& value, char conversion) {
    switch (conversion) {
      case 0:
        return value;
      case 's':
        return runtime_.String(Str(runtime_, value));
      case 'r':
        return runtime_.String(Repr(runtime_, value));
      case 'a':
        return runtime_.String(AsciiOnly(Repr(runtime_, value)));
      default:
        throw Failure("a format string has an unknown conversion");
    }
  }

  static bool IsAlign(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  static Int TakeNumber(const Text& text, size_t& at) {
    Int number = 0;
    for (; at < text.size() && Plain(text[at]) >= '0' && Plain(text[at]) <= '9'; ++at) {
      number = std::min<Int>(number * 10 + (Plain(text[at]) - '0'), Int{1} << 40);
    }
    return number;
  }

  [[noreturn]] static void FailSpec() {
    throw Failure("a format string has a format that is not valid");
  }
  [[noreturn]] static void FailFit() {
    throw Failure("a format string has a format that does not fit its value");
  }

  // "fill, align, sign, #, 0": what stands in front of the width. `default_align`: of the value.
  static void ParseFlags(const Text& text, size_t& at, char default_align, FormatSpec& spec) {
    const auto peek = [&]() -> char32_t { return at < text.size() ? Plain(text[at]) : 0; };
    const bool has_fill = text.size() > 1 && IsAlign(Plain(text[1]));
    if (has_fill) spec.fill = text[at++];
    if (IsAlign(peek())) spec.align = static_cast<char>(Plain(text[at++]));
    if (peek() == '+' || peek() == '-' || peek() == ' ') {
      spec.sign = static_cast<char>(Plain(text[at++]));
    }
    if (peek() == '#') {
      spec.alternate = true;
      ++at;
    }
    if (peek() != '0' || has_fill) return;
    spec.fill = Trusted('0');
    if (spec.align == 0 && default_align == '>') spec.align = '=';
    ++at;
  }

  FormatSpec ParseSpec(const Text& text, char default_align) {
    FormatSpec spec;
    size_t at = 0;
    const auto peek = [&]() -> char32_t { return at < text.size() ? Plain(text[at]) : 0; };
    ParseFlags(text, at, default_align, spec);
    spec.width = TakeNumber(text, at);
    if (peek() == ',' || peek() == '_') spec.group = static_cast<char>(Plain(text[at++]));
    if (peek() == '.') {
      const size_t begin = ++at;
      spec.precision = TakeNumber(text, at);
      if (at == begin) FailSpec();
    }
    if (at < text.size())
      spec.type = Plain(text[at]) < 0x80 ? static_cast<char>(Plain(text[at])) : '?';
    if (at + 1 < text.size()) FailSpec();
    const std::string_view no_groups = spec.group == ',' ? "sncbxXo" : "snc";
    if (spec.group != 0 && no_groups.find(spec.type) != std::string_view::npos) FailSpec();
    runtime_.CheckSize(spec.width);
    return spec;
  }

  static Text FormatString(Text text, const FormatSpec& spec) {
    const bool has_type = spec.type != 0 && spec.type != 's';
    if (has_type || spec.align == '=' || spec.sign != 0 || spec.alternate || spec.group != 0) {
      FailFit();
    }
    if (spec.precision && *spec.precision < static_cast<Int>(text.size())) {
      text.resize(static_cast<size_t>(*spec.precision));
    }
    return TextField(std::move(text), spec);
  }

  static Text FormatCharacter(Int code_point, FormatSpec spec) {
    if (spec.sign != 0 || spec.alternate || spec.precision || !IsCodePoint(code_point)) FailFit();
    if (spec.align == 0 || spec.align == '=') spec.align = '>';
    // Not trusted: the number may come from outside.
    return TextField(Text(1, static_cast<char32_t>(code_point)), spec);
  }

  static Text FormatNumber(const Value& value, const FormatSpec& spec) {
    if (spec.type == 'c' && IsInteger(value.kind())) return FormatCharacter(value.integer(), spec);
    char type = spec.type;
    if (type == 'n') type = value.Is(Kind::kFloat) ? 'g' : 'd';
    const bool for_ints = std::string_view("dxXob").find(type) != std::string_view::npos;
    const bool for_floats = std::string_view("eEfFgG%").find(type) != std::string_view::npos;
    if (type != 0 && !for_ints && !for_floats) FailFit();
    if (for_ints && !IsInteger(value.kind())) FailFit();
    if (!for_floats && IsInteger(value.kind()) && spec.precision) FailFit();
    return NumberField(Digits(value, spec, type), IsNegative(value), spec);
  }

  Text Format(const Value& value, const Text& spec) {
    if (IsNumber(value.kind())) return FormatNumber(value, ParseSpec(spec, '>'));
    if (!value.Is(Kind::kString)) FailFit();
    return FormatString(value.text(), ParseSpec(spec, '<'));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  const bool escapes_;
  Int next_ = 0;
};

}  // namespace

Value FormatBraces(Runtime& runtime, const Text& format, const Arguments& arguments, bool escapes) {
  return runtime.String(BraceFormatter(runtime, arguments, escapes).Run(format, 0));
}

Arguments NamedByMapping(const Arguments& arguments) {
  RefuseKeywords("format_map", arguments);
  const Parameters parameters("format_map", arguments, {"mapping"}, 1);
  if (!parameters[0].Is(Kind::kDict)) throw Failure("format_map needs a dict");
  Arguments named;
  for (const auto& [key, value] : parameters[0].dict().items) {
    if (key.Is(Kind::kString)) named.keywords.emplace_back(key.text(), value);
  }
  return named;
}

}  // namespace hearth::jinja
