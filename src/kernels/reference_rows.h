// The scalar table's kernels for bundle rows; reference.cc puts them into it.
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
constexpr void SetReferenceRows(KernelTable& table) {
  table.row_dot[static_cast<int>(dtype)] = ReferenceRowDot<dtype>;
  table.row_scaled_add[static_cast<int>(dtype)] = ReferenceRowScaledAdd<dtype>;
}

constexpr void SetReferenceRows(KernelTable& table) {
  table.quantize_q8_groups = ReferenceQuantizeQ8Groups;
  SetReferenceRows<DType::kQ4_0>(table);
  SetReferenceRows<DType::kQ4_1>(table);
  SetReferenceRows<DType::kQ8_0>(table);
}

}  // namespace hearth::kernels
