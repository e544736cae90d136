#include "pass/math/spread_heads.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hearth {
namespace {

// Signs without a pattern, or else equal components would all become zero but one: the top bits of
// multiples of 2^32 over the golden ratio.
bool IsNegated(int64_t component) {
  return ((static_cast<uint32_t>(component) * 0x9e3779b9u) >> 31) != 0;
}

// Those of numbers from `first` on.
void ChangeSigns(float* x, int64_t n, int64_t first) {
  for (int64_t i = 0; i < n; ++i) {
    if (IsNegated(first + i)) x[i] = -x[i];
  }
}

// x[0..n) = H x / sqrt(n); n is a power of two.
void Hadamard(float* x, int64_t n, float scale) {
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t begin = 0; begin < n; begin += 2 * half) {
      float* low = x + begin;
      float* high = low + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

void SpreadPiece(float* x, int64_t size) {
  const auto n = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  ChangeSigns(x, size, 0);
  Hadamard(x, n, scale);
  if (n == size) return;
  // With other signs, or it would undo the first one where they overlap.
  float* last = x + size - n;
  ChangeSigns(last, n, size);
  Hadamard(last, n, scale);
}

}  // namespace

void SpreadHeads(Compute& compute, FloatView x, int64_t heads, int64_t head_dim, int64_t range) {
  compute.team().ParallelFor(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        float* components = x.row(row) + head * head_dim;
        for (int64_t first = 0; first < head_dim; first += range) {
          SpreadPiece(components + first, std::min(range, head_dim - first));
        }
      }
    }
  });
}

}  // namespace hearth
