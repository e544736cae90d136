// A call of SparsePrefill::RunRange in progress. For the sources of SparsePrefill only.
#pragma once

#include <algorithm>
#include <atomic>

#include "ops/sparse_prefill.h"

namespace hearth {

struct SparsePrefill::Job {
  const kernels::KernelTable& table;
  const FfnNeurons& ffn;
  const int32_t* row_of;  // a neuron
  FloatView x;
  const kernels::BlockQ8* panels;  // of x, where the gates are row groups
  TileGeometry tiles;              // of those
  int64_t tokens;
  int64_t hidden;
  int64_t neurons;
  int64_t rows_of_sums;  // neurons that are added to sums together
  Range range;
  bool only_listed;
  const SilentGates* silent;  // null: everything is computed
  // The block of neurons at which it is.
  int64_t begin = 0;
  int64_t end = 0;
  std::atomic<int64_t> fired{0};
  std::atomic<int64_t> active{0};

  // The rows of `count` neurons from `first` on, or of as many as there are.
  kernels::RowList Rows(const RowsView& rows, int64_t first, int64_t count) const {
    if (first >= neurons) return {};
    return {rows.data, rows.stride, row_of + first, std::min(count, neurons - first)};
  }
};

}  // namespace hearth
