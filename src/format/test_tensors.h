// Tensors of a file as bytes and values, for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "format/gguf.h"

namespace hearth {

inline std::vector<std::byte> ReadAll(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  file.ReadTensor(tensor, 0, bytes);
  return bytes;
}

template <typename T>
std::vector<T> ReadValues(const GgufFile& file, const std::string& name) {
  const std::vector<std::byte> bytes = ReadAll(file, file.GetTensor(name));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace hearth
