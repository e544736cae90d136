#include "text/tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

namespace hearth {
namespace {

// What a lead byte promises: the length, and the range of the second byte, in which overlong
// forms, surrogates and code points past U+10FFFF are already excluded.
struct Lead {
  uint8_t length;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char ScanUtf8(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {Utf8Status::kComplete, 1, first};
  const Lead lead = LeadOf(first);
  if (lead.length == 0) return {Utf8Status::kInvalid, 1, 0};
  uint32_t code_point = first & (0xFFu >> (lead.length + 1));
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Status::kIncomplete, i, 0};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8Status::kInvalid, i, 0};
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  return {Utf8Status::kComplete, lead.length, code_point};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is.
    uint64_t word = 0;
    while (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof(word);
    }
    if (at == text.size()) break;
    const Utf8Char next = ScanUtf8(text.substr(at));
    if (next.status != Utf8Status::kComplete) break;
    at += next.length;
  }
  return at;
}

size_t Utf8Cut(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text.size();
  size_t cut = max_bytes;
  // No character has more than three continuation bytes; more of them are not UTF-8 anyway.
  const size_t lowest = max_bytes - std::min<size_t>(max_bytes - 1, 3);
  while (cut > lowest && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) --cut;
  return cut;
}

}  // namespace hearth
