// Random rows of neurons for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/row_pack.h"
#include "tensor/row_groups.h"
#include "tensor/view.h"

namespace hearth::testing {

// Rows of random weights, packed, and the same as floats; with biases where that is asked for.
struct TestRows {
  std::vector<std::byte> bytes;
  std::vector<std::vector<float>> weights;
  std::vector<float> biases;
  RowsView view;

  TestRows(DType dtype, int64_t hidden, int64_t neurons, std::mt19937& random,
           bool has_biases = false) {
    view = {.dtype = dtype, .cols = hidden, .rows = neurons};
    view.stride = view.row_bytes() + 64;
    const size_t stride = view.stride;
    bytes.resize(stride * static_cast<size_t>(neurons));
    std::normal_distribution<float> normal(0, 0.1f);
    for (int64_t r = 0; r < neurons; ++r) {
      std::vector<float> row(static_cast<size_t>(hidden));
      for (float& w : row) w = normal(random);
      std::vector<std::byte> blocks(RowBytes(dtype, row.size()));
      kernels::Convert(DType::kF32, reinterpret_cast<const std::byte*>(row.data()), hidden, dtype,
                       blocks.data());
      kernels::Dequantize(dtype, blocks.data(), hidden, row.data());
      std::byte* to = bytes.data() + stride * static_cast<size_t>(r);
      if (HasRowGroups(dtype)) {
        kernels::PackRow(dtype, blocks.data(), hidden, to);
      } else {
        std::copy(blocks.begin(), blocks.end(), to);
      }
      weights.push_back(std::move(row));
      if (!has_biases) continue;
      biases.push_back(normal(random) * 10);
      std::memcpy(to + view.row_bytes() + 1, &biases.back(), sizeof(float));
    }
    view.data = bytes.data();
    if (has_biases) view.biases = bytes.data() + view.row_bytes() + 1;
  }
};

}  // namespace hearth::testing
