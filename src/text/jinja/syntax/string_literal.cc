#include "text/jinja/syntax/string_literal.h"

#include <fmt/format.h>

#include "text/jinja/values/characters.h"
#include "text/jinja/values/failure.h"

namespace hearth::jinja {
namespace {

class Unescaper {
 public:
  Unescaper(TextView body, int line) : body_(body), line_(line) {}

  Text Run() {
    while (at_ < body_.size()) {
      const char32_t c = body_[at_++];
      if (Plain(c) == '\\' && at_ < body_.size()) {
        Escape(Plain(body_[at_++]));
      } else {
        out_ += c;
      }
    }
    return std::move(out_);
  }

 private:
  void Add(char32_t c) { out_ += Trusted(c); }

  void Escape(char32_t c) {
    switch (c) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        return Add(c);
      case 'a':
        return Add('\a');
      case 'b':
        return Add('\b');
      case 'f':
        return Add('\f');
      case 'n':
        return Add('\n');
      case 'r':
        return Add('\r');
      case 't':
        return Add('\t');
      case 'v':
        return Add('\v');
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      case 'N':
        throw Failure("characters by name (\\N{...}) are not supported", line_);
      default:
        break;
    }
    if (c >= '0' && c <= '7') return Octal(c - '0');
    Add('\\');
    if (c < 0x80) return Add(c);
    // Python reads other characters as escapes of their own here, and so shows them.
    const char* form = c < 0x100 ? "x{:02x}" : c < 0x10000 ? "u{:04x}" : "U{:08x}";
    out_ += Own(fmt::format(fmt::runtime(form), static_cast<uint32_t>(c)));
  }

  void Octal(char32_t value) {
    for (int i = 0; i < 2 && at_ < body_.size(); ++i) {
      const char32_t c = Plain(body_[at_]);
      if (c < '0' || c > '7') break;
      value = value * 8 + (c - '0');
      ++at_;
    }
    Add(value);
  }

  void Hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = at_ < body_.size() ? Plain(body_[at_++]) : 0;
      const char32_t letter = c | 0x20;
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if (letter >= 'a' && letter <= 'f') {
        value = value * 16 + (letter - 'a' + 10);
      } else {
        throw Failure("an escape in a string has too few digits", line_);
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      throw Failure("an escape in a string is no Unicode character", line_);
    }
    Add(value);
  }

  const TextView body_;
  const int line_;
  size_t at_ = 0;
  Text out_;
};

}  // namespace

Text Unescape(TextView body, int line) { return Unescaper(body, line).Run(); }

}  // namespace hearth::jinja
