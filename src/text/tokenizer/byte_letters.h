// GPT-2's byte letters: byte-level BPE vocabularies spell each byte as one printable character
// (a space is U+0120), so that tokens are text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hearth {

// The character, in UTF-8, that spells a byte.
std::string ByteLetter(uint8_t byte);

// The bytes that `text` spells; nothing where some character spells no byte.
std::optional<std::string> LettersToBytes(std::string_view text);

}  // namespace hearth
