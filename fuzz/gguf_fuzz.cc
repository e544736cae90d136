// Any bytes as a GGUF file: every value asked for in every way, the first and last bytes of every
// tensor read. Whatever is wrong must come out as hearth::Error.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "format/gguf.h"
#include "storage/block_reader.h"

namespace {

template <typename Get>
void Try(Get get) {
  try {
    get();
  } catch (const hearth::Error&) {  // refusing is fine
  }
}

void AskForEverything(const hearth::GgufMetadata& metadata) {
  for (const auto& pair : metadata.values()) {
    const std::string& key = pair.first;
    Try([&] { metadata.FindUint(key); });
    Try([&] { metadata.FindInt(key); });
    Try([&] { metadata.FindFloat(key); });
    Try([&] { metadata.FindBool(key); });
    Try([&] { metadata.FindString(key); });
    Try([&] { metadata.FindStrings(key); });
    Try([&] { metadata.FindInts(key); });
    Try([&] { metadata.FindFloats(key); });
    Try([&] { metadata.GetUint(key); });
    Try([&] { metadata.GetFloat(key); });
    Try([&] { metadata.GetString(key); });
  }
  if (metadata.Has(std::string("\0no key", 7))) std::abort();
}

// These reads must succeed: Open promised that every tensor lies inside the file.
void ReadEnds(const hearth::GgufFile& file) {
  std::array<std::byte, 64> bytes;
  for (const hearth::GgufTensor& tensor : file.tensors()) {
    if (&file.GetTensor(tensor.name) != &tensor) std::abort();
    if (tensor.bytes == 0) std::abort();
    const size_t count = static_cast<size_t>(std::min<uint64_t>(tensor.bytes, bytes.size()));
    file.ReadTensor(tensor, 0, {bytes.data(), count});
    file.ReadTensor(tensor, tensor.bytes - count, {bytes.data(), count});
    bool refused = false;
    try {
      file.ReadTensor(tensor, tensor.bytes, {bytes.data(), 1});
    } catch (const hearth::Error&) {
      refused = true;
    }
    if (!refused) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const auto* end = begin + size;
  // Two parts where the first byte says so, so that split sets are reached.
  std::vector<std::unique_ptr<hearth::BlockReader>> parts;
  if (size > 1 && data[0] == 'S') {
    const std::byte* middle = begin + 1 + (size - 1) / 2;
    parts.push_back(hearth::MakeMemoryReader("first", std::vector<std::byte>(begin + 1, middle)));
    parts.push_back(hearth::MakeMemoryReader("second", std::vector<std::byte>(middle, end)));
  } else {
    parts.push_back(hearth::MakeMemoryReader("input", std::vector<std::byte>(begin, end)));
  }
  try {
    const hearth::GgufFile file = hearth::GgufFile::FromReaders(std::move(parts));
    AskForEverything(file.metadata());
    ReadEnds(file);
  } catch (const hearth::Error&) {
  }
  return 0;
}
