// Any bytes as a safetensors file: whatever is wrong must come out as hearth::Error, and the ends
// of every tensor that is accepted must be readable.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "format/safetensors.h"
#include "storage/block_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const auto file = hearth::MakeMemoryReader("input", std::vector<std::byte>(begin, begin + size));
  hearth::SafetensorsHeader header;
  try {
    header = hearth::ReadSafetensorsHeader(*file);
  } catch (const hearth::Error&) {  // refusing is fine
    return 0;
  }
  std::array<std::byte, 16> bytes;
  for (const hearth::SafetensorsTensor& tensor : header.tensors) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(tensor.bytes, bytes.size()));
    file->ReadAt(tensor.offset, {bytes.data(), count});
    file->ReadAt(tensor.offset + tensor.bytes - count, {bytes.data(), count});
  }
  return 0;
}
