// Writes the key and the value of one token and head into a page, in its codec.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "tensor/kv_layout.h"

namespace hearth {

// For token `row` of a page. Touches no byte of other tokens. Holds references to both.
class KvRowWriter {
 public:
  KvRowWriter(const KvLayout& layout, int64_t row, const kernels::KvEncoders& encoders)
      : layout_(layout),
        encoders_(encoders),
        block_(layout.key_block()),
        row_(row),
        token_(row % KeyBlockLayout::kTokens) {}

  // Asks for the lines that the key goes to, whose writes would wait for one after the other.
  void FetchKey(std::byte* page_keys) const noexcept;

  // head_dim floats to a head's keys and values in the page.
  void WriteKey(const float* key, std::byte* page_keys) const noexcept;
  void WriteValue(const float* value, std::byte* page_values) const noexcept;

 private:
  // Components of a key that go through a buffer together; even, as int4 codes come in pairs.
  static constexpr int64_t kAtOnce = 64;

  void WriteHalves(const float* key, std::byte* block) const noexcept;
  void WriteCodes(const float* key, std::byte* block) const noexcept;
  // Codes of components [begin, end) of a key; begin is even.
  void WriteRange(const float* key, int64_t begin, int64_t end, const kernels::KeyRange& range,
                  std::byte* block) const noexcept;

  const KvLayout& layout_;
  const kernels::KvEncoders& encoders_;
  KeyBlockLayout block_;
  int64_t row_;
  int64_t token_;  // of its block of keys
};

}  // namespace hearth
