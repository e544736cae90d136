// Rows between GGUF blocks and the groups that bundles store (tensor/row_groups.h), exact both
// ways: codes, scales and minimums are moved, never changed.
//
// dtype is one that HasRowGroups allows; k is a multiple of 32. Callers check sizes; nothing here
// can fail. Buffers need no alignment and must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hearth::kernels {

// RowBytes(dtype, k) bytes of blocks to RowGroupsOf(dtype, k).bytes; padding lanes become zeros.
void PackRow(DType dtype, const std::byte* blocks, int64_t k, std::byte* row) noexcept;

// And back.
void UnpackRow(DType dtype, const std::byte* row, int64_t k, std::byte* blocks) noexcept;

}  // namespace hearth::kernels
