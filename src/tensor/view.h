// A typed, shaped look at memory that somebody else owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"
#include "tensor/row_groups.h"
#include "tensor/weight_tiles.h"

namespace hearth {

// A weight matrix [experts][rows][cols] of any dtype: rows contiguous, blocks along cols; or each
// expert in tiles (tensor/weight_tiles.h). GGUF's ne = {cols, rows, experts}. Plain data; valid as
// long as what it points into.
struct WeightView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t cols = 0;     // input size, GGUF ne[0]
  int64_t rows = 0;     // output size, GGUF ne[1]
  int64_t experts = 1;  // GGUF ne[2]
  bool is_tiled = false;

  bool empty() const { return data == nullptr; }
  size_t row_bytes() const { return RowBytes(dtype, static_cast<size_t>(cols)); }  // of rows only
  TileLayout tile_layout() const { return TileLayout(dtype, cols); }               // of tiles only
  size_t expert_bytes() const {
    return is_tiled ? tile_layout().matrix_bytes(rows) : row_bytes() * static_cast<size_t>(rows);
  }

  // The matrix of one expert.
  WeightView Expert(int64_t index) const {
    WeightView view = *this;
    view.data = data + expert_bytes() * static_cast<size_t>(index);
    view.experts = 1;
    return view;
  }
};

// The same part of neighbouring bundles: a matrix whose rows are row groups (tensor/row_groups.h),
// or F16 numbers, `stride` bytes apart. Plain data.
struct RowsView {
  const std::byte* data = nullptr;  // row 0
  DType dtype = DType::kF32;
  size_t stride = 0;  // bytes from one row to the next
  int64_t cols = 0;
  int64_t rows = 0;  // of one expert
  int64_t experts = 1;
  // A float that is added to what row 0 gives, and those of other rows as far apart as the rows;
  // null where there is none. Need no alignment.
  const std::byte* biases = nullptr;

  bool empty() const { return data == nullptr; }
  float Bias(int64_t row) const {
    float bias;
    std::memcpy(&bias, biases + stride * static_cast<size_t>(row), sizeof(bias));
    return bias;
  }
  // Of a row, without what lies between rows.
  size_t row_bytes() const {
    return HasRowGroups(dtype) ? static_cast<size_t>(RowGroupsOf(dtype, cols).bytes)
                               : RowBytes(dtype, static_cast<size_t>(cols));
  }
  RowsView Expert(int64_t index) const {
    RowsView view = *this;
    const size_t skipped = stride * static_cast<size_t>(rows * index);
    view.data = data + skipped;
    if (biases != nullptr) view.biases = biases + skipped;
    view.experts = 1;
    return view;
  }
};

// A float32 matrix [rows][cols] with a stride in floats between rows.
struct FloatView {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* row(int64_t r) const { return data + r * stride; }
  FloatView Rows(int64_t begin, int64_t count) const {
    return {data + begin * stride, count, cols, stride};
  }
};

}  // namespace hearth
