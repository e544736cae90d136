#include "prepare/predict/float_matrix.h"

#include <algorithm>

#include "base/error.h"
#include "ops/linear.h"

namespace hearth {
namespace {

// Rows and columns of a block that is transposed at a time: both stay in the first-level cache.
constexpr int64_t kBlock = 32;

}  // namespace

FloatMatrix::FloatMatrix(Budget& budget, int64_t rows, int64_t cols)
    : memory_(budget, "predictor maker", static_cast<size_t>(rows * cols) * sizeof(float)),
      values_(reinterpret_cast<float*>(memory_.data())),
      rows_(rows),
      cols_(cols) {}

void MultiplyTransposed(Compute& compute, Budget& budget, FloatView a, FloatView b, FloatView out) {
  if (a.cols != b.cols || b.stride != b.cols || out.rows != a.rows || out.cols != b.rows) {
    throw Error(ErrorCode::kInternal, "MultiplyTransposed", "operands do not fit");
  }
  // Floats are multiplied as they are: nothing is quantized, and nothing needs room for it.
  MatMulInput input(budget, 0, 0);
  input.Set(a);
  const WeightView weights{.data = reinterpret_cast<const std::byte*>(b.data),
                           .dtype = DType::kF32,
                           .cols = b.cols,
                           .rows = b.rows};
  const Product product{weights, out};
  MatMul(compute, {&product, 1}, input);
}

void Transpose(Compute& compute, FloatView in, FloatView out) {
  if (in.rows != out.cols || in.cols != out.rows) {
    throw Error(ErrorCode::kInternal, "Transpose", "operands do not fit");
  }
  compute.team().ParallelFor(in.cols, kBlock, [&](int64_t begin, int64_t end, int) {
    for (int64_t c0 = begin; c0 < end; c0 += kBlock) {
      const int64_t c1 = std::min(c0 + kBlock, end);
      for (int64_t r0 = 0; r0 < in.rows; r0 += kBlock) {
        const int64_t r1 = std::min(r0 + kBlock, in.rows);
        for (int64_t c = c0; c < c1; ++c) {
          for (int64_t r = r0; r < r1; ++r) out.row(c)[r] = in.row(r)[c];
        }
      }
    }
  });
}

}  // namespace hearth
