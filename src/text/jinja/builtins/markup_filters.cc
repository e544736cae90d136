// Filters about HTML and URLs. Nothing is escaped by itself in a chat template; "safe" and "escape"
// give Markup (markup.h).
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/builtins/filters.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/markup.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/signature.h"
#include "text/jinja/values/strings.h"

namespace hearth::jinja {
namespace {

Value EscapeFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("escape", arguments, {});
  return runtime.Markup(EscapedStr(runtime, value));
}

// Escapes Markup again.
Value ForceEscapeFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("forceescape", arguments, {});
  return runtime.Markup(EscapeHtml(Str(runtime, value)));
}

Value SafeFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("safe", arguments, {});
  return runtime.Markup(Str(runtime, value));
}

Text Quoted(const Text& text, bool for_query) {
  constexpr std::string_view kKept = "_.-~";
  Text out;
  for (const char32_t marked : text) {
    const char32_t c = Plain(marked);
    const bool is_letter = c < 0x80 && (IsLetter(c) || IsDecimal(c));
    if (is_letter || (c < 0x80 && kKept.find(static_cast<char>(c)) != std::string_view::npos) ||
        (c == '/' && !for_query)) {
      out += marked;
    } else if (c == ' ' && for_query) {
      out += MarkedLike('+', marked);
    } else {
      for (const char byte : EncodeUtf8(TextView(&marked, 1))) {
        for (const char letter : fmt::format("%{:02X}", static_cast<unsigned char>(byte))) {
          out += MarkedLike(static_cast<unsigned char>(letter), marked);
        }
      }
    }
  }
  return out;
}

Value UrlEncodeFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Parameters("urlencode", arguments, {});
  if (value.Is(Kind::kString) || !IsIterable(value)) {
    return runtime.String(Quoted(Str(runtime, value), false));
  }
  const Value pairs =
      value.Is(Kind::kDict)
          ? Value(runtime.heap().New<DictViewObject>(&value.dict(), DictViewObject::Part::kItems))
          : value;
  Text out;
  for (const Value& pair : Items(runtime, pairs)) {
    const Values parts = Items(runtime, pair);
    if (parts.size() != 2) throw Failure("urlencode needs pairs of a key and a value");
    if (!out.empty()) out += Trusted('&');
    out += Quoted(Str(runtime, parts[0]), true);
    out += Trusted('=');
    out += Quoted(Str(runtime, parts[1]), true);
  }
  return runtime.String(std::move(out));
}

Value XmlAttributesFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Parameters parameters("xmlattr", arguments, {"autospace"});
  if (!value.Is(Kind::kDict)) throw Failure("xmlattr needs a dict, not a " + TypeName(value));
  constexpr std::string_view kForbidden = "/>= \t\n\r\f\v";
  Text out;
  for (const auto& [key, item] : value.dict().items) {
    if (item.Is(Kind::kNone) || item.Is(Kind::kUndefined)) continue;
    if (!key.Is(Kind::kString)) throw Failure("xmlattr needs keys of type str");
    for (const char32_t c : key.text()) {
      if (Plain(c) < 0x80 &&
          kForbidden.find(static_cast<char>(Plain(c))) != std::string_view::npos) {
        throw Failure("xmlattr has a key with a character that is not allowed");
      }
    }
    if (!out.empty()) out += Trusted(' ');
    out += EscapedStr(runtime, key);
    out += Own("=\"");
    out += EscapedStr(runtime, item);
    out += Trusted('"');
  }
  if (!out.empty() && parameters.True(runtime, 0, true)) out.insert(0, 1, Trusted(' '));
  return runtime.String(std::move(out));
}

constexpr NamedFilter kMarkupFilters[] = {
    {"e", EscapeFilter},  {"escape", EscapeFilter},       {"forceescape", ForceEscapeFilter},
    {"safe", SafeFilter}, {"urlencode", UrlEncodeFilter}, {"xmlattr", XmlAttributesFilter},
};

}  // namespace

FilterFn FindMarkupFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kMarkupFilters), std::end(kMarkupFilters),
                                   [&](const NamedFilter& filter) { return filter.name == name; });
  return found == std::end(kMarkupFilters) ? nullptr : found->function;
}

}  // namespace hearth::jinja
