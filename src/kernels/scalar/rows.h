// The scalar table's kernels for bundle rows; table.cc puts them into it.
#pragma once

#include "kernels/kernel_table.h"

namespace hearth::kernels {

void ReferenceQuantizeQ8Groups(const float* x, int64_t n, GroupQ8* out) noexcept;

// Defined for Q4_0, Q4_1 and Q8_0.
template <DType dtype>
void ReferenceRowDot(const RowDotArgs& args) noexcept;
template <DType dtype>
void ReferenceRowScaledAdd(const RowScaledAddArgs& args) noexcept;

template <DType dtype>
void ReferenceRowsToTile(const RowsToTileArgs& args) noexcept;
template <DType dtype>
void ReferenceRowsTimesTokens(const RowsTimesTokensArgs& args) noexcept;
template <DType dtype>
void ReferenceRowsToSums(const RowsToSumsArgs& args) noexcept;

void ReferenceSumsToColumns(const float* sums, int64_t tokens, int64_t token, int64_t blocks,
                            float* out) noexcept;

int64_t ReferencePackFired(const PackFiredArgs& args) noexcept;

void ReferenceXxh32Rows(const RowHashArgs& args) noexcept;

template <DType dtype>
constexpr void SetReferenceRows(KernelTable& table) {
  table.row_dot[static_cast<int>(dtype)] = ReferenceRowDot<dtype>;
  table.row_scaled_add[static_cast<int>(dtype)] = ReferenceRowScaledAdd<dtype>;
  table.rows_to_tile[static_cast<int>(dtype)] = ReferenceRowsToTile<dtype>;
  table.rows_times_tokens[static_cast<int>(dtype)] = ReferenceRowsTimesTokens<dtype>;
  table.rows_to_sums[static_cast<int>(dtype)] = ReferenceRowsToSums<dtype>;
}

// Float rows: float_rows.cc.
void ReferenceHalfRowDot(const FloatRowDotArgs& args) noexcept;
void ReferenceHalfRowScaledAdd(const RowScaledAddArgs& args) noexcept;
void ReferenceHalfRowTimesTokens(const FloatRowTimesTokensArgs& args) noexcept;
void ReferenceHalfRowsToTokens(const FloatRowsToTokensArgs& args) noexcept;

constexpr void SetReferenceRows(KernelTable& table) {
  table.quantize_q8_groups = ReferenceQuantizeQ8Groups;
  table.sums_to_columns = ReferenceSumsToColumns;
  table.pack_fired = ReferencePackFired;
  table.xxh32_rows = ReferenceXxh32Rows;
  SetReferenceRows<DType::kQ4_0>(table);
  SetReferenceRows<DType::kQ4_1>(table);
  SetReferenceRows<DType::kQ8_0>(table);
  constexpr auto kF16 = static_cast<int>(DType::kF16);
  table.float_row_dot[kF16] = ReferenceHalfRowDot;
  table.row_scaled_add[kF16] = ReferenceHalfRowScaledAdd;
  table.float_row_times_tokens[kF16] = ReferenceHalfRowTimesTokens;
  table.float_rows_to_tokens[kF16] = ReferenceHalfRowsToTokens;
}

}  // namespace hearth::kernels
