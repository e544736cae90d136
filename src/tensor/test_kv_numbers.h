// Reads single numbers out of KV pages, as docs/formats/kv.md says, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/fp8.h"
#include "tensor/half.h"
#include "tensor/kv_layout.h"

namespace hearth::testing {

inline float FloatAt(const std::byte* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
inline float HalfAt(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return HalfToFloat(half);
}

// A component of a key. Keys without codes have zero alone.
struct KeyNumber {
  float zero = 0;
  float scale = 0;
  int code = 0;

  double value() const { return double{zero} + double{scale} * code; }
};

// Component i of a token of a block of keys.
inline KeyNumber KeyAt(const KeyBlockLayout& layout, const std::byte* block, int64_t token,
                       int64_t i) {
  const std::byte* at = block + layout.ComponentAt(token, i);
  if (layout.keys == KvKeys::kF32) return {.zero = FloatAt(at)};
  if (layout.keys == KvKeys::kF16) return {.zero = HalfAt(at)};
  int code = std::to_integer<int>(*at);
  if (layout.keys == KvKeys::kInt4) code = i % 2 == 0 ? code & 15 : code >> 4;
  return {HalfAt(block + layout.ZeroAt(token, i)), HalfAt(block + layout.ScaleAt(token, i)), code};
}

// A component of a value, before its scale where it has one.
inline float ValueAt(KvValues type, const std::byte* at) {
  if (type == KvValues::kFp8) return Fp8ToFloat(std::to_integer<uint8_t>(*at));
  return type == KvValues::kF16 ? HalfAt(at) : FloatAt(at);
}

}  // namespace hearth::testing
