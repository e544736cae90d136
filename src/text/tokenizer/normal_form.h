// Unicode's normal form C, to which some models' tokenizers bring a text first.
#pragma once

#include <string>
#include <string_view>

namespace hearth {

// Returns `text` with its letters and marks composed (NFC). Bytes that are not UTF-8 stay as they
// are. Needs time about linear in the length, also for endless runs of marks.
std::string ToNfc(std::string_view text);

// A text is at most this many times as long in bytes as its normal form C.
inline constexpr int kMostNfcShrink = 3;

}  // namespace hearth
