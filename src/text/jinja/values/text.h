// Text whose every character is marked: trusted, written by the template or the program, or not,
// because it came from outside (a user's message, a role, a tool's name).
//
// The mark is the top bit of the character, so that it goes wherever the character goes: through
// concatenation, slices, replacement, joins. Comparisons and searches do not see it. In the end
// only trusted parts are searched for special tokens (docs/architecture.md, invariant 6).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/jinja/values/memory_meter.h"

namespace hearth::jinja {

inline constexpr char32_t kTrustedMark = 0x80000000;

// The code point of a marked character.
constexpr char32_t Plain(char32_t c) { return c & ~kTrustedMark; }
constexpr bool IsTrusted(char32_t c) { return (c & kTrustedMark) != 0; }
constexpr char32_t Trusted(char32_t c) { return c | kTrustedMark; }
// `c` with the mark of `like`.
constexpr char32_t MarkedLike(char32_t c, char32_t like) { return c | (like & kTrustedMark); }

// Compares code points and overlooks marks.
struct MarkedTraits : std::char_traits<char32_t> {
  static constexpr bool eq(char32_t a, char32_t b) noexcept { return Plain(a) == Plain(b); }
  static constexpr bool lt(char32_t a, char32_t b) noexcept { return Plain(a) < Plain(b); }
  static int compare(const char32_t* a, const char32_t* b, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (lt(a[i], b[i])) return -1;
      if (lt(b[i], a[i])) return 1;
    }
    return 0;
  }
  static const char32_t* find(const char32_t* text, size_t count, const char32_t& c) {
    for (size_t i = 0; i < count; ++i) {
      if (eq(text[i], c)) return text + i;
    }
    return nullptr;
  }
};

using Text = std::basic_string<char32_t, MarkedTraits, MeteredAllocator<char32_t>>;
using TextView = std::basic_string_view<char32_t, MarkedTraits>;

// UTF-8 as marked characters; bytes that are not UTF-8 become U+FFFD.
Text DecodeText(std::string_view utf8, bool trusted);
// The same for what the interpreter itself writes: trusted.
inline Text Own(std::string_view utf8) { return DecodeText(utf8, true); }

std::string EncodeUtf8(TextView text);

}  // namespace hearth::jinja
