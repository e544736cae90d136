// Where the keys and values of a KV page lie (FORMATS.md, "KV cache").
//
// A page holds 64 tokens of every layer and KV head. For a (layer, head) pair the keys are a
// matrix [64][head_dim] and the values another one behind it, each in the page's dtype, so that
// the attention kernel streams both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hearth {

struct KvLayout {
  static constexpr int64_t kPageTokens = 64;

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

  static int64_t PagesFor(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  bool operator==(const KvLayout&) const = default;
};

}  // namespace hearth
