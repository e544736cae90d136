// UTF-8 read one character at a time, with a verdict on what is not UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

enum class Utf8Status : uint8_t {
  kComplete,    // a character
  kInvalid,     // bytes that no continuation can turn into a character
  kIncomplete,  // the text ends inside a character that could still become one
};

struct Utf8Char {
  Utf8Status status = Utf8Status::kInvalid;
  // Bytes of the character. Where it is none: the longest run that begins a character (at least
  // 1), so that each run can be replaced by one U+FFFD as the Unicode standard recommends.
  uint8_t length = 1;
  uint32_t code_point = 0;  // of a complete character
};

// What `text`, which must not be empty, begins with. Overlong forms, surrogates and anything past
// U+10FFFF are invalid.
Utf8Char ScanUtf8(std::string_view text);

// Length of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

// Length of the longest prefix of at most max_bytes (at least 4) that does not end inside a
// character.
size_t Utf8Cut(std::string_view text, size_t max_bytes);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace hearth
