// The bytes of a GGUF v3 header, and where the tensors after it lie. Internal to format/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace hearth {

struct GgufLayout {
  std::vector<std::byte> header;  // padded to where the tensor data begins
  // Where each key's value lies in the header: its type number, then the value.
  std::map<std::string, std::pair<uint64_t, uint64_t>, std::less<>> values;  // begin, end
  std::vector<uint64_t> offsets;  // of each tensor, from the start of the file
  std::vector<uint64_t> bytes;    // of each tensor, without padding
  uint64_t total_bytes = 0;       // of the file, the last tensor padded too
};

// Throws Error(kInvalidArgument), naming `path`, for metadata or tensors that a reader would
// refuse.
GgufLayout PlanGguf(const std::string& path, const GgufMetadata& metadata,
                    const std::vector<GgufTensorDecl>& tensors);

// The type number and bytes of one value, as they lie in a header. Throws likewise.
std::vector<std::byte> SerializeGgufValue(const std::string& path, std::string_view key,
                                          const GgufValue& value);

}  // namespace hearth
