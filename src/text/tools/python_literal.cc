#include "text/tools/python_literal.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "text/grammar/json_schema_parts.h"
#include "text/jinja/values/text.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

// A parser by recursive descent; `false` all the way up where the text is no literal.
class LiteralParser {
 public:
  explicit LiteralParser(std::string_view text) : text_(text) {}

  bool Parse(Json& value) {
    if (!Value(value, 0)) return false;
    SkipSpace();
    return at_ == text_.size();
  }

 private:
  static constexpr int kMaxDepth = 100;

  bool IsAt(char byte) const { return at_ < text_.size() && text_[at_] == byte; }
  bool Take(char byte) {
    if (!IsAt(byte)) return false;
    ++at_;
    return true;
  }
  void SkipSpace() {
    while (IsAt(' ') || IsAt('\t') || IsAt('\n') || IsAt('\r')) ++at_;
  }

  bool Value(Json& value, int depth) {
    if (depth > kMaxDepth) return false;
    SkipSpace();
    if (at_ == text_.size()) return false;
    switch (text_[at_]) {
      case '\'':
      case '"':
        return String(value);
      case '[':
        ++at_;
        return List(value, ']', depth);
      case '(':
        ++at_;
        return List(value, ')', depth);
      case '{':
        ++at_;
        return Dict(value, depth);
      default:
        return Word(value);
    }
  }

  bool List(Json& value, char close, int depth) {
    value = Json::array();
    for (;;) {
      SkipSpace();
      if (Take(close)) return true;
      Json item;
      if (!Value(item, depth + 1)) return false;
      value.push_back(std::move(item));
      SkipSpace();
      if (!IsAt(close) && !Take(',')) return false;
    }
  }

  bool Dict(Json& value, int depth) {
    value = Json::object();
    for (;;) {
      SkipSpace();
      if (Take('}')) return true;
      Json key, member;
      if (!Value(key, depth + 1)) return false;
      SkipSpace();
      if (!Take(':') || !Value(member, depth + 1)) return false;
      const std::string name = key.is_string() ? key.get<std::string>() : key.dump();
      value[name] = std::move(member);
      SkipSpace();
      if (!IsAt('}') && !Take(',')) return false;
    }
  }

  // A number or a name.
  bool Word(Json& value) {
    const size_t begin = at_;
    while (at_ < text_.size() && IsOfWord(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True" || word == "true") {
      value = true;
    } else if (word == "False" || word == "false") {
      value = false;
    } else if (word == "None" || word == "null") {
      value = nullptr;
    } else {
      return Number(word, value);
    }
    return true;
  }

  static bool IsOfWord(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '+' || c == '-' || c == '.';
  }

  // Numbers of JSON, and as Python also writes them: "+1", "1_000", ".5", "1.".
  static bool Number(std::string_view word, Json& value) {
    std::string digits;
    for (const char c : word) {
      if (c != '_') digits += c;
    }
    if (!digits.empty() && digits[0] == '+') digits.erase(0, 1);
    const size_t first = digits.empty() || digits[0] != '-' ? 0 : 1;
    if (first < digits.size() && digits[first] == '.') digits.insert(first, "0");
    const size_t point = digits.find('.');
    const bool ends_in_point =
        point != std::string::npos &&
        (point + 1 == digits.size() || digits[point + 1] == 'e' || digits[point + 1] == 'E');
    if (ends_in_point) digits.insert(point + 1, "0");
    value = Json::parse(digits, nullptr, false);
    return value.is_number();
  }

  bool String(Json& value) {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) {
        value = std::move(out);
        return true;
      }
      if (c != '\\') {
        out += c;
      } else if (!Escape(out)) {
        return false;
      }
    }
    return false;
  }

  bool Escape(std::string& out) {
    if (at_ == text_.size()) return false;
    constexpr std::string_view kNames = "ntrbfav0\\'\"\n/";
    constexpr std::string_view kBytes{"\n\t\r\b\f\a\v\0\\'\"\n/", 13};
    const char c = text_[at_++];
    if (c == 'x') return Hex(2, out);
    if (c == 'u') return Hex(4, out);
    if (c == 'U') return Hex(8, out);
    const size_t known = kNames.find(c);
    if (known == std::string_view::npos) {
      out += '\\';  // Python keeps what it does not know
      out += c;
    } else if (c != '\n') {  // which ends a line of the source only
      out += kBytes[known];
    }
    return true;
  }

  bool HexDigits(size_t count, uint32_t& code) {
    code = 0;
    for (; count > 0; --count) {
      if (at_ == text_.size()) return false;
      const char c = text_[at_++];
      const uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                             : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                                    : 16;
      if (digit == 16) return false;
      code = code << 4 | digit;
    }
    return true;
  }

  bool Hex(size_t count, std::string& out) {
    uint32_t code = 0;
    if (!HexDigits(count, code)) return false;
    // JSON writes characters beyond the first 65,536 as two halves.
    const bool is_first_half = code >= 0xD800 && code < 0xDC00;
    if (is_first_half && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      uint32_t second = 0;
      if (!HexDigits(4, second) || second < 0xDC00 || second > 0xDFFF) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
    }
    const bool is_half = code >= 0xD800 && code < 0xE000;
    if (is_half || code > 0x10FFFF) return false;
    const auto character = static_cast<char32_t>(code);
    out += jinja::EncodeUtf8({&character, 1});
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> PythonToJson(std::string_view text) {
  if (Json::accept(text)) return std::string(text);
  Json value;
  if (!LiteralParser(text).Parse(value)) return std::nullopt;
  return JsonText(value);
}

}  // namespace hearth
