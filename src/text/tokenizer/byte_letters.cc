#include "text/tokenizer/byte_letters.h"

#include <array>

#include "text/tokenizer/utf8.h"

namespace hearth {
namespace {

// Printable Latin-1 characters spell themselves; the other 68 bytes, in order, are spelled by the
// characters from U+0100 on.
constexpr bool SpellsItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kLetterEnd = 0x100 + 68;

constexpr std::array<uint16_t, 256> MakeLetters() {
  std::array<uint16_t, 256> letters{};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    letters[byte] = SpellsItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return letters;
}

constexpr std::array<uint16_t, 256> kLetterOfByte = MakeLetters();

constexpr std::array<int16_t, kLetterEnd> MakeBytes() {
  std::array<int16_t, kLetterEnd> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kLetterOfByte[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kLetterEnd> kByteOfLetter = MakeBytes();

}  // namespace

std::string ByteLetter(uint8_t byte) {
  const uint16_t letter = kLetterOfByte[byte];
  if (letter < 0x80) return std::string(1, static_cast<char>(letter));
  return {static_cast<char>(0xC0 | letter >> 6), static_cast<char>(0x80 | (letter & 0x3F))};
}

std::optional<std::string> LettersToBytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char letter = ScanUtf8(text);
    if (letter.status != Utf8Status::kComplete || letter.code_point >= kLetterEnd ||
        kByteOfLetter[letter.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kByteOfLetter[letter.code_point]));
    text.remove_prefix(letter.length);
  }
  return bytes;
}

}  // namespace hearth
