// Methods of str.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"
#include "text/jinja/values/formatting.h"
#include "text/jinja/values/methods.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/repr.h"
#include "text/jinja/values/search.h"
#include "text/jinja/values/signature.h"
#include "text/jinja/values/strings.h"

namespace hearth::jinja {
namespace {

template <Text (*kFunction)(TextView)>
Value MapText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("this method", arguments, {});
  runtime.Spend(self.text().size() / 4);
  return runtime.String(kFunction(self.text()));
}

template <Side kSide>
Value StripMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("strip", arguments);
  const Parameters parameters("strip", arguments, {"chars"});
  const Text* characters = parameters.IsSet(0) ? &parameters.String(0) : nullptr;
  if (characters != nullptr) runtime.Spend(characters->size() * (self.text().size() + 1) / 16);
  return runtime.String(Strip(self.text(), kSide, characters));
}

template <std::vector<Text> (*kSplit)(Runtime&, const Text&, const Text*, Int)>
Value SplitMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("split", arguments, {"sep", "maxsplit"});
  const Text* separator = parameters.IsSet(0) ? &parameters.String(0) : nullptr;
  return TextList(runtime, kSplit(runtime, self.text(), separator, parameters.Integer(1, -1)));
}

Value SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("splitlines", arguments, {"keepends"});
  runtime.Spend(self.text().size() / 16);
  return TextList(runtime, SplitLines(self.text(), parameters.True(runtime, 0, false)));
}

Value ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("replace", arguments);
  const Parameters parameters("replace", arguments, {"old", "new", "count"}, 2);
  return runtime.String(Replace(runtime, self.text(), parameters.String(0), parameters.String(1),
                                parameters.Integer(2, -1)));
}

Value JoinMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("join", arguments);
  const Parameters parameters("join", arguments, {"iterable"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : Items(runtime, parameters[0])) {
    if (!item.Is(Kind::kString)) {
      throw Failure(fmt::format("join needs items of type str, not {}", TypeName(item)));
    }
    if (!std::exchange(first, false)) out += self.text();
    runtime.CheckSize(static_cast<Int>(out.size() + item.text().size()));
    out += item.text();
  }
  return runtime.String(std::move(out));
}

// The part of the text that the arguments [start, end) after `first` select.
std::pair<size_t, size_t> Bounds(const Parameters& parameters, size_t first, size_t size) {
  const auto length = static_cast<Int>(size);
  const auto bound = [&](size_t index, Int otherwise) {
    Int value = parameters.IsSet(index) ? parameters.Integer(index, 0) : otherwise;
    if (value < 0) value = std::max<Int>(value + length, 0);
    return value;
  };
  const Int begin = bound(first, 0);
  const Int end = std::min(bound(first + 1, length), length);
  if (begin > length) return {size + 1, size};
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

// startswith and endswith: one text, or a tuple of them.
template <bool kAtEnd>
Value HasAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords(kAtEnd ? "endswith" : "startswith", arguments);
  const Parameters parameters(kAtEnd ? "endswith" : "startswith", arguments,
                              {"prefix", "start", "end"}, 1);
  const auto [begin, end] = Bounds(parameters, 1, self.text().size());
  const bool is_empty = begin > end;
  const TextView part = is_empty ? TextView() : TextView(self.text()).substr(begin, end - begin);
  const auto has = [&](const Value& affix) {
    if (!affix.Is(Kind::kString)) throw Failure("startswith and endswith need a str");
    const size_t size = affix.text().size();
    if (is_empty || size > part.size()) return false;
    runtime.Spend(size / 16);
    return (kAtEnd ? part.substr(part.size() - size) : part.substr(0, size)) == affix.text();
  };
  if (!parameters[0].Is(Kind::kTuple)) return Value::Bool(has(parameters[0]));
  runtime.Spend(parameters[0].items().size());
  return Value::Bool(std::any_of(parameters[0].items().begin(), parameters[0].items().end(), has));
}

enum class Search { kFind, kFindLast, kIndex, kIndexLast };

template <Search kSearch>
Value FindMethodOfText(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("find", arguments);
  const Parameters parameters("find", arguments, {"sub", "start", "end"}, 1);
  const Text& wanted = parameters.String(0);
  const auto [begin, end] = Bounds(parameters, 1, self.text().size());
  constexpr bool kLast = kSearch == Search::kFindLast || kSearch == Search::kIndexLast;
  size_t found = TextView::npos;
  if (begin <= end) {
    const TextView part = TextView(self.text()).substr(begin, end - begin);
    found = kLast ? FindTextBackward(runtime, part, wanted) : FindText(runtime, part, wanted);
  }
  if (found != TextView::npos) return Value::Integer(static_cast<Int>(begin + found));
  if (kSearch == Search::kIndex || kSearch == Search::kIndexLast) {
    throw Failure("index did not find the text");
  }
  return Value::Integer(-1);
}

Value CountMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("count", arguments);
  const Parameters parameters("count", arguments, {"sub", "start", "end"}, 1);
  const Text& wanted = parameters.String(0);
  runtime.Spend(self.text().size() / 16);
  const auto [begin, end] = Bounds(parameters, 1, self.text().size());
  if (begin > end) return Value::Integer(0);
  const TextView part = TextView(self.text()).substr(begin, end - begin);
  if (wanted.empty()) return Value::Integer(static_cast<Int>(part.size()) + 1);
  Int count = 0;
  const TextFinder finder(runtime, wanted);
  for (size_t at = 0; (at = finder.Find(part, at)) != TextView::npos; at += wanted.size()) ++count;
  return Value::Integer(count);
}

template <bool (*kTest)(char32_t)>
Value AllAre(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("this method", arguments, {});
  runtime.Spend(self.text().size() / 4);
  const Text& text = self.text();
  return Value::Bool(!text.empty() && std::all_of(text.begin(), text.end(), kTest));
}

bool IsLetterOrNumber(char32_t c) { return IsLetter(c) || IsNumeric(c); }

template <bool kUpper>
Value HasOneCase(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("this method", arguments, {});
  runtime.Spend(self.text().size() / 4);
  bool any = false;
  for (const char32_t c : self.text()) {
    if (kUpper ? IsLowercase(c) || IsTitlecase(c) : IsUppercase(c) || IsTitlecase(c)) {
      return Value::Bool(false);
    }
    any = any || (kUpper ? IsUppercase(c) : IsLowercase(c));
  }
  return Value::Bool(any);
}

Value IsTitle(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("istitle", arguments, {});
  runtime.Spend(self.text().size() / 4);
  bool any = false;
  bool after_cased = false;
  for (const char32_t c : self.text()) {
    const bool begins = IsUppercase(c) || IsTitlecase(c);
    if (begins ? after_cased : IsLowercase(c) && !after_cased) return Value::Bool(false);
    after_cased = begins || IsLowercase(c);
    any = any || after_cased;
  }
  return Value::Bool(any);
}

Value IsAscii(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("isascii", arguments, {});
  runtime.Spend(self.text().size() / 4);
  return Value::Bool(std::all_of(self.text().begin(), self.text().end(),
                                 [](char32_t c) { return Plain(c) < 0x80; }));
}

Value IsPrintableMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("isprintable", arguments, {});
  runtime.Spend(self.text().size() / 4);
  return Value::Bool(std::all_of(self.text().begin(), self.text().end(), IsPrintable));
}

Value IsIdentifier(Runtime& runtime, const Value& self, const Arguments& arguments) {
  Parameters("isidentifier", arguments, {});
  runtime.Spend(self.text().size() / 4);
  return Value::Bool(!self.text().empty() && IsIdentifierStart(self.text()[0]) &&
                     std::all_of(self.text().begin(), self.text().end(), IsIdentifierPart));
}

enum class Pad { kLeft, kRight, kCenter };

template <Pad kPad>
Value PadMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("this method", arguments);
  const Parameters parameters("this method", arguments, {"width", "fillchar"}, 1);
  const Int width = parameters.Integer(0, 0);
  runtime.CheckSize(width);
  if (parameters.Has(1) && parameters.String(1).size() != 1) {
    throw Failure("the fill character must be one character");
  }
  const char32_t fill = parameters.Has(1) ? parameters.String(1)[0] : Trusted(' ');
  const Text& text = self.text();
  if (kPad == Pad::kCenter) return runtime.String(Center(text, width, fill));
  const Int missing = std::max<Int>(width - static_cast<Int>(text.size()), 0);
  const Text padding(static_cast<size_t>(missing), fill);
  return runtime.String(kPad == Pad::kLeft ? text + padding : padding + text);
}

Value ZeroFill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("zfill", arguments);
  const Parameters parameters("zfill", arguments, {"width"}, 1);
  const Int width = parameters.Integer(0, 0);
  runtime.CheckSize(width);
  const Int missing = std::max<Int>(width - static_cast<Int>(self.text().size()), 0);
  Text text = self.text();
  const bool has_sign = !text.empty() && (Plain(text[0]) == '+' || Plain(text[0]) == '-');
  text.insert(has_sign ? 1 : 0, static_cast<size_t>(missing), Trusted('0'));
  return runtime.String(std::move(text));
}

template <bool kSuffix>
Value RemoveAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("this method", arguments);
  const Parameters parameters("this method", arguments, {"affix"}, 1);
  const Text& affix = parameters.String(0);
  const Text& text = self.text();
  if (affix.empty() || affix.size() > text.size()) return self;
  runtime.Spend(affix.size() / 16);
  const size_t rest = text.size() - affix.size();
  if (text.compare(kSuffix ? rest : 0, affix.size(), affix) != 0) return self;
  return runtime.String(kSuffix ? text.substr(0, rest) : text.substr(affix.size()));
}

template <bool kFromRight>
Value Partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RefuseKeywords("partition", arguments);
  const Parameters parameters("partition", arguments, {"sep"}, 1);
  const Text& separator = parameters.String(0);
  if (separator.empty()) throw Failure("partition needs a separator that is not empty");
  const Text& text = self.text();
  const size_t found =
      kFromRight ? FindTextBackward(runtime, text, separator) : FindText(runtime, text, separator);
  if (found == Text::npos) {
    const Value empty = runtime.String({});
    return kFromRight ? runtime.Tuple({empty, empty, self}) : runtime.Tuple({self, empty, empty});
  }
  return runtime.Tuple({runtime.String(text.substr(0, found)),
                        runtime.String(text.substr(found, separator.size())),
                        runtime.String(text.substr(found + separator.size()))});
}

Value ExpandTabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Parameters parameters("expandtabs", arguments, {"tabsize"});
  const Int size = parameters.Integer(0, 8);
  runtime.CheckSize(size);
  Text out;
  Int column = 0;
  for (const char32_t c : self.text()) {
    if (Plain(c) == '\t') {
      const Int spaces = size > 0 ? size - column % size : 0;
      runtime.CheckSize(static_cast<Int>(out.size()) + spaces);
      out.append(static_cast<size_t>(spaces), MarkedLike(' ', c));
      column += spaces;
    } else {
      out += c;
      column = Plain(c) == '\n' || Plain(c) == '\r' ? 0 : column + 1;
    }
  }
  return runtime.String(std::move(out));
}

Value FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

Value FormatMapMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), NamedByMapping(arguments));
}

struct NamedMethod {
  std::string_view name;
  MethodFn function;
};

constexpr NamedMethod kStringMethods[] = {
    {"capitalize", MapText<Capitalize>},
    {"casefold", MapText<CaseFold>},
    {"center", PadMethod<Pad::kCenter>},
    {"count", CountMethod},
    {"endswith", HasAffix<true>},
    {"expandtabs", ExpandTabs},
    {"find", FindMethodOfText<Search::kFind>},
    {"format", FormatMethod},
    {"format_map", FormatMapMethod},
    {"index", FindMethodOfText<Search::kIndex>},
    {"isalnum", AllAre<IsLetterOrNumber>},
    {"isalpha", AllAre<IsLetter>},
    {"isascii", IsAscii},
    {"isdecimal", AllAre<IsDecimal>},
    {"isdigit", AllAre<IsDigit>},
    {"isidentifier", IsIdentifier},
    {"islower", HasOneCase<false>},
    {"isnumeric", AllAre<IsNumeric>},
    {"isprintable", IsPrintableMethod},
    {"isspace", AllAre<IsSpace>},
    {"istitle", IsTitle},
    {"isupper", HasOneCase<true>},
    {"join", JoinMethod},
    {"ljust", PadMethod<Pad::kLeft>},
    {"lower", MapText<Lower>},
    {"lstrip", StripMethod<Side::kLeft>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethodOfText<Search::kFindLast>},
    {"rindex", FindMethodOfText<Search::kIndexLast>},
    {"rjust", PadMethod<Pad::kRight>},
    {"rpartition", Partition<true>},
    {"rsplit", SplitMethod<SplitFromRight>},
    {"rstrip", StripMethod<Side::kRight>},
    {"split", SplitMethod<Split>},
    {"splitlines", SplitLinesMethod},
    {"startswith", HasAffix<false>},
    {"strip", StripMethod<Side::kBoth>},
    {"swapcase", MapText<SwapCase>},
    {"title", MapText<TitleWords>},
    {"upper", MapText<Upper>},
    {"zfill", ZeroFill},
};

}  // namespace

MethodFn FindStringMethod(std::string_view name) {
  const auto* found = std::find_if(std::begin(kStringMethods), std::end(kStringMethods),
                                   [&](const NamedMethod& method) { return method.name == name; });
  return found == std::end(kStringMethods) ? nullptr : found->function;
}

}  // namespace hearth::jinja
