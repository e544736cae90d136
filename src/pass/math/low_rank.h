// Low-rank terms: what LoRA adapters add to products of weight matrices.
#pragma once

#include <cstdint>
#include <span>

#include "ops/compute.h"
#include "tensor/view.h"

namespace hearth {

// out[r] += (scale * x[r] A^T) B for some rows r.
struct LowRankTerm {
  const float* a = nullptr;  // [rank][x.cols]
  const float* b = nullptr;  // [rank][columns]
  int64_t rank = 0;
  int64_t columns = 0;    // at most out.cols
  FloatView out;          // as many rows as x
  int64_t first_row = 0;  // of x and of out
  int64_t rows = 0;
  float scale = 1;
  int64_t place = 0;  // the first of `rank` columns of the scratch that are the term's
};

// Adds terms of one input, in two parallel sections. In this order a token costs
// rank * (x.cols + columns) multiply-adds, where merging first would cost rank * x.cols * columns
// (MNN §5.5, Table 3). Terms of the same rows must differ in `out` and in place. scratch has as
// many rows as x and all columns that terms name. What is added to a row depends on that row of x
// and on its terms alone, bit for bit. Throws Error(kInternal) where shapes do not fit.
void AddLowRank(Compute& compute, FloatView x, std::span<const LowRankTerm> terms,
                FloatView scratch);

}  // namespace hearth
