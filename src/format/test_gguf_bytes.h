// Builds GGUF bytes field by field, right or wrong, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/gguf.h"
#include "storage/block_reader.h"

namespace hearth {

// Numbers of tensor types in the file.
inline constexpr uint32_t kGgufTestF32 = 0;
inline constexpr uint32_t kGgufTestQ4_0 = 2;

class GgufTestBytes {
 public:
  template <typename T>
  GgufTestBytes& Put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  GgufTestBytes& U8(uint8_t value) { return Put(value); }
  GgufTestBytes& U32(uint32_t value) { return Put(value); }
  GgufTestBytes& U64(uint64_t value) { return Put(value); }
  GgufTestBytes& Raw(std::string_view text) {
    for (const char c : text) Put(c);
    return *this;
  }
  GgufTestBytes& Str(std::string_view text) { return U64(text.size()).Raw(text); }
  GgufTestBytes& Type(GgufType type) { return U32(static_cast<uint32_t>(type)); }
  GgufTestBytes& Zeros(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  GgufTestBytes& PadTo(size_t alignment) {
    while (bytes_.size() % alignment != 0) U8(0);
    return *this;
  }

  // Parts of a file.
  GgufTestBytes& Header(uint64_t num_tensors, uint64_t num_pairs, uint32_t version = 3) {
    return Raw("GGUF").U32(version).U64(num_tensors).U64(num_pairs);
  }
  GgufTestBytes& PairU32(std::string_view key, uint32_t value) {
    return Str(key).Type(GgufType::kUint32).U32(value);
  }
  GgufTestBytes& PairU16(std::string_view key, uint16_t value) {
    return Str(key).Type(GgufType::kUint16).Put(value);
  }
  GgufTestBytes& Tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                        uint64_t offset) {
    Str(name).U32(static_cast<uint32_t>(ne.size()));
    for (const uint64_t n : ne) U64(n);
    return U32(type).U64(offset);
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

inline GgufFile OpenBytes(std::vector<std::byte> bytes, std::string name = "test.gguf") {
  std::vector<std::unique_ptr<BlockReader>> parts;
  parts.push_back(MakeMemoryReader(std::move(name), std::move(bytes)));
  return GgufFile::FromReaders(std::move(parts));
}

}  // namespace hearth
