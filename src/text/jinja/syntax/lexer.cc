#include "text/jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "text/jinja/syntax/string_literal.h"
#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"

namespace hearth::jinja {
namespace {

// "\r\n" and "\r" become "\n"; one at the very end goes.
Text NormalizeLineBreaks(const Text& source) {
  Text out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const char32_t c = Plain(source[i]);
    if (c == '\r' && i + 1 < source.size() && Plain(source[i + 1]) == '\n') continue;
    out += c == '\r' ? Trusted('\n') : source[i];
  }
  if (!out.empty() && Plain(out.back()) == '\n') out.pop_back();
  return out;
}

constexpr std::string_view kTwoCharacterOperators[] = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kOperators = "+-/*%~[](){}><=.:|,;";

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeLineBreaks(Own(source))) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) ReadData();
    tokens_.push_back({TokenKind::kEnd, line_, {}, 0, 0});
    return std::move(tokens_);
  }

 private:
  // --- the source

  bool Has(size_t at, std::string_view ascii) const {
    if (source_.size() - std::min(at, source_.size()) < ascii.size()) return false;
    for (size_t i = 0; i < ascii.size(); ++i) {
      if (Plain(source_[at + i]) != static_cast<unsigned char>(ascii[i])) return false;
    }
    return true;
  }
  bool Has(std::string_view ascii) const { return Has(at_, ascii); }
  char32_t At(size_t at) const { return at < source_.size() ? Plain(source_[at]) : 0; }

  size_t SkipSpace(size_t at) const {
    while (at < source_.size() && IsSpace(source_[at])) ++at;
    return at;
  }

  // Moves on, counting lines.
  void MoveTo(size_t at) {
    line_ += static_cast<int>(std::count_if(source_.begin() + static_cast<ptrdiff_t>(at_),
                                            source_.begin() + static_cast<ptrdiff_t>(at),
                                            [](char32_t c) { return Plain(c) == '\n'; }));
    line_starting_ = at > at_ && Plain(source_[at - 1]) == '\n';
    at_ = at;
  }

  void Add(TokenKind kind, Text text = {}) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
  }

  [[noreturn]] void Fail(const std::string& what) const { throw Failure(what, line_); }

  // --- text between tags

  // The text up to `tag`, without what the tag's sign, or lstrip_blocks, takes from its end.
  void AddData(size_t tag, bool is_variable) {
    Text text(source_, at_, tag - at_);
    const char32_t sign = At(tag + 2);
    if (sign == '-') {
      while (!text.empty() && IsSpace(text.back())) text.pop_back();
    } else if (sign != '+' && !is_variable) {
      const size_t line_break = text.rfind('\n');
      const size_t line_begin = line_break == Text::npos ? 0 : line_break + 1;
      const bool at_line_begin = line_begin > 0 || line_starting_;
      const auto begin = text.begin() + static_cast<ptrdiff_t>(line_begin);
      if (at_line_begin && std::all_of(begin, text.end(), IsSpace)) text.erase(line_begin);
    }
    if (!text.empty()) Add(TokenKind::kData, std::move(text));
    MoveTo(tag);
  }

  void ReadData() {
    size_t tag = at_;
    while (tag < source_.size() &&
           !(At(tag) == '{' && (At(tag + 1) == '{' || At(tag + 1) == '%' || At(tag + 1) == '#'))) {
      ++tag;
    }
    if (tag == source_.size()) {
      Add(TokenKind::kData, source_.substr(at_));
      MoveTo(tag);
      return;
    }
    AddData(tag, At(tag + 1) == '{');
    if (const auto raw_end = RawBeginEnd()) {
      ReadRaw(*raw_end);
    } else if (Has("{#")) {
      ReadComment();
    } else {
      ReadTag(Has("{{"));
    }
  }

  size_t AfterSign(size_t at) const { return At(at) == '-' || At(at) == '+' ? at + 1 : at; }

  // After "{% raw %}", where that stands here.
  std::optional<size_t> RawBeginEnd() const {
    if (!Has("{%")) return std::nullopt;
    size_t at = SkipSpace(AfterSign(at_ + 2));
    if (!Has(at, "raw")) return std::nullopt;
    at = SkipSpace(at + 3);
    if (Has(at, "-%}")) return SkipSpace(at + 3);
    return Has(at, "%}") ? std::optional(at + 2) : std::nullopt;
  }

  // After "+%}", "-%}" with the space after it, or "%}" with one line break after it.
  std::optional<size_t> EndOf(size_t at, std::string_view closing) const {
    if (At(at) == '+' && Has(at + 1, closing)) return at + 1 + closing.size();
    if (At(at) == '-' && Has(at + 1, closing)) return SkipSpace(at + 1 + closing.size());
    if (!Has(at, closing)) return std::nullopt;
    at += closing.size();
    return At(at) == '\n' ? at + 1 : at;
  }

  void ReadRaw(size_t begin) {
    MoveTo(begin);
    if (at_ == source_.size()) return;  // Jinja looks for no end where the template ends
    for (size_t tag = at_; tag < source_.size(); ++tag) {
      if (!Has(tag, "{%")) continue;
      const size_t name = SkipSpace(AfterSign(tag + 2));
      if (!Has(name, "endraw")) continue;
      const auto end = EndOf(SkipSpace(name + 6), "%}");
      if (!end) continue;
      AddData(tag, false);
      MoveTo(*end);
      return;
    }
    Fail("a raw block has no end");
  }

  void ReadComment() {
    const size_t begin = AfterSign(at_ + 2);
    if (begin == source_.size()) return MoveTo(begin);  // as for a raw block
    for (size_t at = begin; at < source_.size(); ++at) {
      if (const auto end = EndOf(at, "#}")) {
        MoveTo(*end);
        return;
      }
    }
    Fail("a comment has no end");
  }

  // --- tags

  void ReadTag(bool is_variable) {
    Add(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    MoveTo(AfterSign(at_ + 2));
    std::string open;  // brackets
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const auto end = TagEnd(is_variable)) {
          Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
          MoveTo(*end);
          return;
        }
      }
      ReadToken(open);
    }
  }

  std::optional<size_t> TagEnd(bool is_variable) const {
    if (!is_variable) return EndOf(at_, "%}");
    if (Has("-}}")) return SkipSpace(at_ + 3);
    return Has("}}") ? std::optional(at_ + 2) : std::nullopt;
  }

  void ReadToken(std::string& open) {
    const char32_t c = At(at_);
    if (IsSpace(c)) {
      MoveTo(SkipSpace(at_));
    } else if (c >= '0' && c <= '9') {
      ReadNumber();
    } else if (IsIdentifierPart(c)) {
      size_t end = at_;
      while (end < source_.size() && IsIdentifierPart(source_[end])) ++end;
      if (!IsIdentifierStart(c)) Fail("a name cannot begin with this character");
      Add(TokenKind::kName, source_.substr(at_, end - at_));
      MoveTo(end);
    } else if (c == '\'' || c == '"') {
      ReadString(c);
    } else {
      ReadOperator(open);
    }
  }

  // After digits, single underscores between them; `at` where there is none.
  template <typename IsDigitFn>
  size_t SkipDigits(size_t at, IsDigitFn is_digit) const {
    if (!is_digit(At(at))) return at;
    for (;;) {
      ++at;
      if (At(at) == '_' && is_digit(At(at + 1))) ++at;
      if (!is_digit(At(at))) return at;
    }
  }

  static bool IsDecimalDigit(char32_t c) { return c >= '0' && c <= '9'; }

  // After the float that stands here; nothing where there is none.
  std::optional<size_t> FloatEnd() const {
    if (at_ > 0 && At(at_ - 1) == '.') return std::nullopt;  // of "list.0.1"
    const size_t whole = SkipDigits(at_, IsDecimalDigit);
    size_t end = whole;
    if (At(end) == '.') {
      const size_t fraction = SkipDigits(end + 1, IsDecimalDigit);
      if (fraction != end + 1) end = fraction;
    }
    if ((At(end) | 0x20) == 'e') {
      const size_t digits = AfterSign(end + 1);
      const size_t exponent = SkipDigits(digits, IsDecimalDigit);
      if (exponent != digits) return exponent;
    }
    return end == whole ? std::nullopt : std::optional(end);
  }

  size_t IntegerEnd(int* base) const {
    const char32_t letter = At(at_) == '0' ? At(at_ + 1) | 0x20 : 0;
    const auto prefixed = [&](char32_t prefix, int its_base, auto is_digit) -> size_t {
      if (letter != prefix) return 0;
      const size_t begin = At(at_ + 2) == '_' ? at_ + 3 : at_ + 2;
      const size_t end = SkipDigits(begin, is_digit);
      if (end == begin) return 0;
      *base = its_base;
      return end;
    };
    const auto is_hex = [](char32_t c) {
      return IsDecimalDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    *base = 10;
    if (const size_t end = prefixed('b', 2, [](char32_t c) { return c == '0' || c == '1'; })) {
      return end;
    }
    if (const size_t end = prefixed('o', 8, [](char32_t c) { return c >= '0' && c <= '7'; })) {
      return end;
    }
    if (const size_t end = prefixed('x', 16, is_hex)) return end;
    if (At(at_) != '0') return SkipDigits(at_, IsDecimalDigit);
    return SkipDigits(at_, [](char32_t c) { return c == '0'; });
  }

  void ReadNumber() {
    if (const auto end = FloatEnd()) {
      const auto value = ParseFloat(TextView(source_).substr(at_, *end - at_));
      tokens_.push_back({TokenKind::kFloat, line_, {}, 0, value.value_or(0)});
      MoveTo(*end);
      return;
    }
    int base = 10;
    const size_t end = IntegerEnd(&base);
    const auto value = ParseInt(TextView(source_).substr(at_, end - at_), base);
    if (!value) Fail("the number has too many digits");
    tokens_.push_back({TokenKind::kInteger, line_, {}, *value, 0});
    MoveTo(end);
  }

  void ReadString(char32_t quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && At(end) != quote) end += At(end) == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("a string has no closing quote");
    Add(TokenKind::kString, Unescape(TextView(source_).substr(at_ + 1, end - at_ - 1), line_));
    MoveTo(end + 1);
  }

  void ReadOperator(std::string& open) {
    for (const std::string_view two : kTwoCharacterOperators) {
      if (!Has(two)) continue;
      Add(TokenKind::kOperator, Own(two));
      MoveTo(at_ + 2);
      return;
    }
    const char32_t c = At(at_);
    if (c >= 0x80 || kOperators.find(static_cast<char>(c)) == std::string_view::npos || c == 0) {
      Fail(fmt::format("unexpected character '{}'", EncodeUtf8(source_.substr(at_, 1))));
    }
    const char letter = static_cast<char>(c);
    if (letter == '(' || letter == '[' || letter == '{') {
      open += letter == '(' ? ')' : letter == '[' ? ']' : '}';
    } else if (letter == ')' || letter == ']' || letter == '}') {
      if (open.empty()) Fail(fmt::format("unexpected '{}'", letter));
      if (open.back() != letter) {
        Fail(fmt::format("unexpected '{}', expected '{}'", letter, open.back()));
      }
      open.pop_back();
    }
    Add(TokenKind::kOperator, source_.substr(at_, 1));
    MoveTo(at_ + 1);
  }

  const Text source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what came before ended with a line break
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source_utf8) { return Lexer(source_utf8).Run(); }

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "{{";
    case TokenKind::kVariableEnd:
      return "}}";
    case TokenKind::kBlockBegin:
      return "{%";
    case TokenKind::kBlockEnd:
      return "%}";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kName:
    case TokenKind::kOperator:
      break;
  }
  return "'" + EncodeUtf8(token.text) + "'";
}

}  // namespace hearth::jinja
