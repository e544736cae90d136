// How a matrix product is cut into tiles that stay in registers: R rows of weights times T tokens.
//
// A family of kernels (matmul_float-inl.h) supplies
//   template <int R, int T> static void Tile(const MatMulArgs&, int64_t row, int64_t token)
//   static constexpr int kRowsOfTile   with T = kTokensOfTile
// and must add the products of a row and a token in the same order whatever R and T are.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

inline constexpr int kTokensOfTile = 4;

// Rows at once for a single token: enough independent sums to hide the latency of an addition
// and enough streams to keep the memory busy.
inline constexpr int kRowsOfDecode = 4;

// Rows that are used for all tokens before going on, so that they are read from memory once and
// from the second-level cache afterwards.
inline constexpr int64_t kRowPanelBytes = 128 * 1024;
inline constexpr int64_t kRowPanelMultiple = 12;  // of all tiles' rows: 1, 2, 3, 4

template <class Family, int R, int T>
HWY_INLINE void RowsTimesTokens(const MatMulArgs& a, int64_t begin, int64_t end, int64_t token) {
  int64_t row = begin;
  for (; row + R <= end; row += R) Family::template Tile<R, T>(a, row, token);
  for (; row < end; ++row) Family::template Tile<1, T>(a, row, token);
}

template <class Family>
HWY_INLINE void RowsTimesAllTokens(const MatMulArgs& a, int64_t begin, int64_t end) {
  int64_t token = 0;
  for (; token + kTokensOfTile <= a.tokens; token += kTokensOfTile) {
    RowsTimesTokens<Family, Family::kRowsOfTile, kTokensOfTile>(a, begin, end, token);
  }
  for (; token < a.tokens; ++token) {
    RowsTimesTokens<Family, kRowsOfDecode, 1>(a, begin, end, token);
  }
}

template <class Family>
void MatMul(const MatMulArgs& a) noexcept {
  const int64_t bytes = static_cast<int64_t>(a.row_bytes);
  int64_t panel = bytes > 0 ? kRowPanelBytes / bytes / kRowPanelMultiple * kRowPanelMultiple : 0;
  if (panel == 0) panel = kRowPanelMultiple;
  if (a.tokens == 1) panel = a.row_end - a.row_begin;
  for (int64_t begin = a.row_begin; begin < a.row_end; begin += panel) {
    RowsTimesAllTokens<Family>(a, begin, a.row_end - begin < panel ? a.row_end : begin + panel);
  }
}

// Row r of the weights.
HWY_INLINE const uint8_t* RowAt(const MatMulArgs& a, int64_t r) {
  return reinterpret_cast<const uint8_t*>(a.weights) + static_cast<size_t>(r) * a.row_bytes;
}

HWY_INLINE float& OutAt(const MatMulArgs& a, int64_t row, int64_t token) {
  return a.out[token * a.out_stride + row - a.row_begin];
}

}  // namespace hearth::kernels::HEARTH_ISA
