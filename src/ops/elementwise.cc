#include "ops/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/tile_pack.h"

namespace hearth {
namespace {

// Calls fn(row) for every row; a single row is not worth waking the team for.
template <typename F>
void ForRows(Compute& compute, int64_t rows, F&& fn) {
  compute.team().ParallelFor(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) fn(r);
  });
}

}  // namespace

void RmsNorm(Compute& compute, FloatView x, const float* weight, float epsilon, FloatView out) {
  const auto norm = compute.kernels().rms_norm;
  ForRows(compute, x.rows, [&](int64_t r) { norm(x.row(r), weight, x.cols, epsilon, out.row(r)); });
}

void LayerNorm(Compute& compute, FloatView x, const float* weight, const float* bias, float epsilon,
               FloatView out) {
  ForRows(compute, x.rows, [&](int64_t r) {
    const float* const from = x.row(r);
    float* const to = out.row(r);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < x.cols; ++i) sum += double{from[i]};
    const double mean = sum / static_cast<double>(x.cols);
    for (int64_t i = 0; i < x.cols; ++i) {
      squares += (double{from[i]} - mean) * (double{from[i]} - mean);
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.cols) + double{epsilon});
    for (int64_t i = 0; i < x.cols; ++i) {
      to[i] = static_cast<float>((double{from[i]} - mean) * scale) * weight[i] + bias[i];
    }
  });
}

void RmsNormHeads(Compute& compute, FloatView x, int64_t heads, int64_t head_dim,
                  const float* weight, float epsilon) {
  const auto norm = compute.kernels().rms_norm;
  ForRows(compute, x.rows, [&](int64_t r) {
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x.row(r) + h * head_dim;
      norm(head, weight, head_dim, epsilon, head);
    }
  });
}

void Rope(Compute& compute, FloatView x, int64_t heads, int64_t head_dim,
          const Rotation& rotation) {
  const auto rope = compute.kernels().rope;
  ForRows(compute, x.rows, [&](int64_t r) {
    for (int64_t h = 0; h < heads; ++h) {
      rope(x.row(r) + h * head_dim, rotation.cos.row(r), rotation.sin.row(r), rotation.cos.cols,
           rotation.layout);
    }
  });
}

void Copy(Compute& compute, FloatView x, FloatView out) {
  ForRows(compute, x.rows, [&](int64_t r) { std::copy_n(x.row(r), x.cols, out.row(r)); });
}

void Softcap(Compute& compute, FloatView x, float cap) {
  ForRows(compute, x.rows, [&](int64_t r) {
    float* row = x.row(r);
    for (int64_t i = 0; i < x.cols; ++i) row[i] = cap * std::tanh(row[i] / cap);
  });
}

void ScaleBySigmoid(Compute& compute, FloatView x, const float* weight, FloatView out) {
  ForRows(compute, x.rows, [&](int64_t r) {
    double sum = 0;
    for (int64_t i = 0; i < x.cols; ++i) sum += double{x.row(r)[i]} * double{weight[i]};
    const auto share = static_cast<float>(1 / (1 + std::exp(-sum)));
    for (int64_t i = 0; i < out.cols; ++i) out.row(r)[i] *= share;
  });
}

void Scale(Compute& compute, FloatView x, float scale) {
  ForRows(compute, x.rows, [&](int64_t r) {
    float* row = x.row(r);
    for (int64_t i = 0; i < x.cols; ++i) row[i] *= scale;
  });
}

void ScaleByPosition(Compute& compute, FloatView x, std::span<const int64_t> positions,
                     PositionScale by) {
  ForRows(compute, x.rows, [&](int64_t r) {
    const auto periods = static_cast<double>(positions[static_cast<size_t>(r)] / by.period);
    const auto scale = static_cast<float>(by.scale * (1 + by.temperature * std::log1p(periods)));
    float* row = x.row(r);
    for (int64_t i = 0; i < x.cols; ++i) row[i] *= scale;
  });
}

void Add(Compute& compute, FloatView x, FloatView y) {
  const auto add = compute.kernels().add;
  ForRows(compute, x.rows, [&](int64_t r) { add(y.row(r), x.cols, x.row(r)); });
}

void AddToRows(Compute& compute, FloatView x, const float* row) {
  const auto add = compute.kernels().add;
  ForRows(compute, x.rows, [&](int64_t r) { add(row, x.cols, x.row(r)); });
}

void ApplyFfnActivation(Compute& compute, FfnActivation activation, float threshold, FloatView gate,
                        FloatView up) {
  const auto act = compute.kernels().ffn_activation[static_cast<size_t>(activation)];
  ForRows(compute, gate.rows,
          [&](int64_t r) { act(gate.row(r), up.row(r), gate.cols, threshold, gate.row(r)); });
}

void ApplyActivation(Compute& compute, FfnActivation activation, float threshold, FloatView x) {
  constexpr int64_t kPiece = 256;
  constexpr auto kOnes = [] {
    std::array<float, kPiece> ones{};
    ones.fill(1.0f);
    return ones;
  }();
  const auto act = compute.kernels().ffn_activation[static_cast<size_t>(activation)];
  ForRows(compute, x.rows, [&](int64_t r) {
    for (int64_t i = 0; i < x.cols; i += kPiece) {
      float* const at = x.row(r) + i;
      act(at, kOnes.data(), std::min(kPiece, x.cols - i), threshold, at);
    }
  });
}

void LookUpRows(Compute& compute, const WeightView& matrix, std::span<const int32_t> ids,
                FloatView out) {
  ForRows(compute, static_cast<int64_t>(ids.size()), [&](int64_t i) {
    const int64_t row = ids[static_cast<size_t>(i)];
    const std::byte* stored = matrix.data + static_cast<size_t>(row) * matrix.row_bytes();
    std::vector<std::byte> unpacked;
    if (matrix.is_tiled) {
      unpacked.resize(matrix.row_bytes());
      kernels::UnpackTileRow(matrix.dtype, matrix.tile_layout(), matrix.data, row, unpacked.data());
      stored = unpacked.data();
    }
    kernels::Dequantize(matrix.dtype, stored, matrix.cols, out.row(i));
  });
}

void FillZero(FloatView x) {
  for (int64_t r = 0; r < x.rows; ++r) {
    std::memset(x.row(r), 0, static_cast<size_t>(x.cols) * sizeof(float));
  }
}

}  // namespace hearth
