// Rows of F16 weights one weight at a time. Sums are in double, as in table.cc, but for those
// whose order the contract fixes.
#include <cstring>

#include "kernels/scalar/rows.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

double WeightAt(const std::byte* row, int64_t i) {
  HalfBits bits;
  std::memcpy(&bits, row + 2 * i, sizeof(bits));
  return HalfToFloat(bits);
}

const std::byte* RowOf(const RowList& list, int64_t i) {
  return list.base + list.stride * static_cast<size_t>(list.rows[i]);
}

float Dot(const std::byte* row, const float* x, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += WeightAt(row, i) * x[i];
  return static_cast<float>(sum);
}

// out[i] += a * row[i] on columns [begin, end).
void AddScaled(const std::byte* row, float a, int64_t begin, int64_t end, float* out) {
  for (int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(out[i] + a * WeightAt(row, i));
}

}  // namespace

void ReferenceHalfRowDot(const FloatRowDotArgs& args) noexcept {
  for (int64_t i = 0; i < args.list.count; ++i) {
    args.out[i] = Dot(RowOf(args.list, i), args.x, args.k);
  }
}

void ReferenceHalfRowScaledAdd(const RowScaledAddArgs& args) noexcept {
  const int64_t last = args.group_end * kRowGroupWeights;
  const int64_t end = last < args.k ? last : args.k;
  for (int64_t i = 0; i < args.list.count; ++i) {
    const int64_t begin = args.group_begin * kRowGroupWeights;
    AddScaled(RowOf(args.list, i), args.a[i], begin, end, args.out);
  }
}

void ReferenceHalfRowTimesTokens(const FloatRowTimesTokensArgs& args) noexcept {
  for (int64_t i = 0; i < args.count; ++i) {
    args.out[i] = Dot(args.row, args.x + args.tokens[i] * args.x_stride, args.k);
  }
}

void ReferenceHalfRowsToTokens(const FloatRowsToTokensArgs& args) noexcept {
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int32_t e = args.begin[t]; e < args.end[t]; ++e) {
      AddScaled(RowOf(args.list, args.places[e]), args.a[e], 0, args.columns,
                args.out + t * args.out_stride);
    }
  }
}

}  // namespace hearth::kernels
