// Matrices of float32 for making predictors, and the few products that it takes. The work is done
// by ops/linear.h, so that results are the same for every number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/budget.h"
#include "base/buffer.h"
#include "ops/compute.h"
#include "tensor/view.h"

namespace hearth {

// [rows][cols], contiguous, charged to a budget as "predictor maker". Starts as zeros.
class FloatMatrix {
 public:
  FloatMatrix() = default;
  FloatMatrix(Budget& budget, int64_t rows, int64_t cols);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float* row(int64_t r) { return values_ + r * cols_; }
  const float* row(int64_t r) const { return values_ + r * cols_; }
  std::span<float> values() { return {values_, static_cast<size_t>(rows_ * cols_)}; }
  std::span<const float> values() const { return {values_, static_cast<size_t>(rows_ * cols_)}; }
  FloatView view() { return {values_, rows_, cols_, cols_}; }
  // For operands that are only read: views have no const.
  FloatView view() const { return {values_, rows_, cols_, cols_}; }

 private:
  Buffer memory_;
  float* values_ = nullptr;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
};

// out[m][n] = a[m][k] * b[n][k]^T. The rows of b are contiguous.
void MultiplyTransposed(Compute& compute, Budget& budget, FloatView a, FloatView b, FloatView out);

// out[c][r] = in[r][c].
void Transpose(Compute& compute, FloatView in, FloatView out);

}  // namespace hearth
