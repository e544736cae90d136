// Sizes in bytes as people write them. K, M and G are 2^10, 2^20 and 2^30 everywhere in Hearth.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

// "2.5G" -> 2684354560. Accepts an optional suffix K, M, G or T in either case, with an optional
// trailing "B" or "iB". Throws Error(kInvalidArgument) naming `what` for anything else, for
// negative sizes and for sizes over 2^62.
uint64_t ParseSize(std::string_view text, std::string_view what);

// 2684354560 -> "2.50 GiB"; below 1 KiB plain bytes.
std::string FormatSize(uint64_t bytes);

}  // namespace hearth
