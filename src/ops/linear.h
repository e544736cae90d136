// Products of weight matrices with the activations of one or many tokens.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "ops/compute.h"
#include "tensor/op_kinds.h"
#include "tensor/view.h"

namespace hearth {

// The right-hand operand of one or several products: rows of float32, and the same rows
// quantized to int8 in panels (kernel_table.h), or rounded, as soon as a quantized weight asks for
// them.
class MatMulInput {
 public:
  // Room for max_rows rows of max_cols, charged as "activations".
  MatMulInput(Budget& budget, int64_t max_rows, int64_t max_cols,
              TileActivations kind = TileActivations::kInt8);

  // Refers to `x` from now on; the caller keeps it alive and unchanged while it is used.
  void Set(FloatView x);
  FloatView x() const { return x_; }
  TileActivations kind() const { return kind_; }

  // For kF16 alone. Rounds the rows when they are first asked for after Set. Numbers beyond 65,504
  // do not overflow: only their digits are rounded. RoundedRow's result is valid until its next
  // call.
  FloatView Rounded(Compute& compute);
  FloatView RoundedRow(int64_t r);

  // For kInt8 alone. Quantizes the rows when they are first asked for after Set. x().cols must be a
  // multiple of 32.
  const kernels::BlockQ8* Quantized(Compute& compute);
  // The same on the calling thread alone.
  const kernels::BlockQ8* QuantizedAlone(Compute& compute);
  // Row r alone, as a panel of its own. Valid until the next call.
  const kernels::BlockQ8* QuantizedRow(Compute& compute, int64_t r);

  static uint64_t ChargedBytes(int64_t max_rows, int64_t max_cols,
                               TileActivations kind = TileActivations::kInt8);

 private:
  kernels::BlockQ8* CheckedBlocks(int64_t rows);
  float* CheckedFloats(int64_t rows);
  void QuantizeRows(const Compute& compute, int64_t begin, int64_t end,
                    kernels::BlockQ8* out) const;

  const TileActivations kind_;
  FloatView x_;
  Buffer rows_;  // all rows as `kind_` says, and one more for a row alone
  bool is_ready_ = false;
};

// out = x * weights^T (+ bias): out [tokens][weights.rows].
struct Product {
  WeightView weights;
  FloatView out;
  const float* bias = nullptr;  // [weights.rows]
};

// Computes all products of one input in one parallel section, split by rows. Types without a
// kernel are a bug of the loader: Error(kInternal). Shapes are checked likewise.
void MatMul(Compute& compute, std::span<const Product> products, MatMulInput& input);

// Rows [begin, end) of a product, on the calling thread alone; the bits are MatMul's. `begin` is a
// multiple of kMatMulRowGrain. q8: x as MatMulInput quantizes it; null where weights are floats.
// Shapes are the caller's to check.
inline constexpr int64_t kMatMulRowGrain = 64;
void MatMulRows(Compute& compute, const Product& product, FloatView x, const kernels::BlockQ8* q8,
                int64_t begin, int64_t end) noexcept;

// Products with chosen rows only: for every token t, out[t][r] for r in active[t] (ascending) and
// 0 elsewhere. Each value is the same bits as MatMul's.
void MatMulActive(Compute& compute, const Product& product, MatMulInput& input,
                  std::span<const std::span<const int32_t>> active);

}  // namespace hearth
