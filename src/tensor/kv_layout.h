// Where the keys and values of a KV page lie (docs/formats/kv.md).
//
// A page holds 64 tokens of every layer and KV head. For a (layer, head) pair the values are a
// matrix [64][head_dim]; in front of it are the keys, in blocks of 16 tokens, each of which is a
// matrix [head_dim][16]. So the attention kernels stream both, and add to the scores of 16 tokens
// and to 16 components of an output at once, without sums over the lanes of a vector. Both are in
// the page's dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace hearth {

// The type of a KV cache that users name "f16" or "f32"; nothing for other names.
inline std::optional<DType> KvTypeFromName(std::string_view name) {
  if (name == "f16") return DType::kF16;
  if (name == "f32") return DType::kF32;
  return std::nullopt;
}

struct KvLayout {
  static constexpr int64_t kPageTokens = 64;
  static constexpr int64_t kKeyBlock = 16;  // tokens whose keys lie together

  DType dtype = DType::kF16;  // F16 or F32
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  size_t element_bytes() const { return InfoOf(dtype).block_bytes; }
  size_t row_bytes() const { return static_cast<size_t>(head_dim) * element_bytes(); }
  size_t matrix_bytes() const { return row_bytes() * static_cast<size_t>(kPageTokens); }
  size_t page_bytes() const {
    return 2 * matrix_bytes() * static_cast<size_t>(num_layers * num_kv_heads);
  }
  // Offsets of the two matrices of a (layer, head) pair inside a page.
  size_t KeysOffset(int64_t layer, int64_t head) const {
    return 2 * matrix_bytes() * static_cast<size_t>(layer * num_kv_heads + head);
  }
  size_t ValuesOffset(int64_t layer, int64_t head) const {
    return KeysOffset(layer, head) + matrix_bytes();
  }

  // Component i of a page's token `row`, counted in elements: among its keys and among its values.
  int64_t KeyElement(int64_t row, int64_t i) const {
    return (row / kKeyBlock * head_dim + i) * kKeyBlock + row % kKeyBlock;
  }
  int64_t ValueElement(int64_t row, int64_t i) const { return row * head_dim + i; }

  static int64_t PagesFor(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  bool operator==(const KvLayout&) const = default;
};
static_assert(KvLayout::kPageTokens % KvLayout::kKeyBlock == 0);

}  // namespace hearth
