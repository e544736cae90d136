// The bytes of saved KV pages (docs/formats/kv.md): a header, then every page and its checksum. Who
// writes and reads them, and for which tokens, is others' business (engine/session/session_file.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/kv_layout.h"

namespace hearth {

inline constexpr size_t kKvHeaderBytes = 56;
inline constexpr size_t kKvPageHashBytes = 8;
using KvHeader = std::array<std::byte, kKvHeaderBytes>;

// The header in front of the pages of `length` tokens.
KvHeader MakeKvHeader(const KvLayout& layout, int64_t length);
// The number of tokens that it stands in front of. Throws Error(kCorrupt) where it was altered,
// Error(kUnsupported) where pages have another layout.
int64_t CheckKvHeader(const KvHeader& header, const KvLayout& layout, const std::string& file);

// From the header's first byte to the page's; its checksum, XXH3 of its bytes, lies after it.
uint64_t KvPageOffset(const KvLayout& layout, int64_t page);
// Of the header and all pages of `length` tokens. Throws Error(kCorrupt), naming `file`, for more
// than any file holds.
uint64_t SavedKvBytes(const KvLayout& layout, int64_t length, const std::string& file);

}  // namespace hearth
