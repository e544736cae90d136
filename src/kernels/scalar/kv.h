// The scalar table's kernels for coded keys and values; table.cc puts them into it.
#pragma once

#include "kernels/kernel_table.h"

namespace hearth::kernels {

KeyRange ReferenceKeyRange(const float* x, int64_t n, int32_t most_code) noexcept;
void ReferenceKeyCodes(const float* x, int64_t n, const KeyRange& range, uint8_t* out) noexcept;
uint16_t ReferenceToFp8(const float* x, int64_t n, uint8_t* out) noexcept;

// Defined for int8 and int4.
template <KvKeys keys>
void ReferenceCodedScores(const AttentionScoresArgs& args) noexcept;
void ReferenceFp8Values(const AttentionValuesArgs& args) noexcept;

constexpr void SetReferenceKv(KernelTable& table) {
  table.kv_encoders.key_range = ReferenceKeyRange;
  table.kv_encoders.key_codes = ReferenceKeyCodes;
  table.kv_encoders.to_fp8 = ReferenceToFp8;
  table.attn_scores[static_cast<int>(KvKeys::kInt8)] = ReferenceCodedScores<KvKeys::kInt8>;
  table.attn_scores[static_cast<int>(KvKeys::kInt4)] = ReferenceCodedScores<KvKeys::kInt4>;
  table.attn_values[static_cast<int>(KvValues::kFp8)] = ReferenceFp8Values;
}

}  // namespace hearth::kernels
