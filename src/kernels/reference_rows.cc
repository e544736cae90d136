// Bundle rows one weight at a time, found by the description in tensor/row_groups.h. Sums are in
// double, as in reference.cc, but for those whose order the contract fixes.
#include "kernels/reference_rows.h"

#include <cstring>

#include "kernels/tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/row_groups.h"

namespace hearth::kernels {
namespace {

float HalfAt(const std::byte* p) {
  HalfBits bits;
  std::memcpy(&bits, p, sizeof(bits));
  return HalfToFloat(bits);
}

// One row of a list.
template <DType dtype>
class Row {
 public:
  Row(const RowList& list, int64_t i, const RowGroups& layout)
      : row_(list.base + list.stride * static_cast<size_t>(list.rows[i])), layout_(layout) {}

  // The code of weight i of a block, as it is stored.
  int Code(int64_t block, int64_t i) const {
    constexpr int64_t kLaneCodes = dtype == DType::kQ8_0 ? 4 : 8;
    const int64_t group = block / kRowGroupBlocks;
    const int64_t left = layout_.lanes - group * kRowGroupBlocks;
    const int64_t lanes = left < kRowGroupBlocks ? left : kRowGroupBlocks;
    const int64_t lane = i / kLaneCodes * lanes + block % kRowGroupBlocks;
    const std::byte byte = row_[group * layout_.group_bytes + lane * kRowLaneBytes + i % 4];
    if constexpr (dtype == DType::kQ8_0) return static_cast<int8_t>(byte);
    return static_cast<int>(i % kLaneCodes < 4 ? byte & std::byte{15} : byte >> 4);
  }
  // What a stored code stands for, in units of the scale, less the minimum.
  static constexpr int kOffset = dtype == DType::kQ4_0 ? 8 : 0;

  double Scale(int64_t block) const { return HalfAt(row_ + layout_.scales + 2 * block); }
  double Minimum(int64_t block) const {
    return dtype == DType::kQ4_1 ? HalfAt(row_ + layout_.minimums + 2 * block) : 0.0;
  }

 private:
  const std::byte* row_;
  const RowGroups& layout_;
};

// What one block adds to the dot product.
template <DType dtype>
double BlockDot(const Row<dtype>& row, int64_t block, const GroupQ8& x) {
  const int64_t lane = block % kRowGroupBlocks;
  int32_t sum = 0;
  for (int64_t i = 0; i < 32; ++i) {
    sum += (row.Code(block, i) - row.kOffset) * x.codes[i / 4][4 * lane + i % 4];
  }
  return x.scales[lane] * (row.Scale(block) * sum + row.Minimum(block) * x.sums[lane]);
}

}  // namespace

void ReferenceQuantizeQ8Groups(const float* x, int64_t n, GroupQ8* out) noexcept {
  const int64_t blocks = n / 32;
  for (int64_t b = 0; b < blocks; ++b) {
    GroupQ8& group = out[b / kRowGroupBlocks];
    const int64_t lane = b % kRowGroupBlocks;
    if (lane == 0) group = GroupQ8{};
    BlockQ8 block;
    kScalarKernels.quantize_q8(x + 32 * b, 32, &block, 1);
    for (int64_t i = 0; i < 32; ++i) group.codes[i / 4][4 * lane + i % 4] = block.codes[i];
    group.scales[lane] = block.scale;
    group.sums[lane] = block.minus_8_sum / -8;
  }
}

template <DType dtype>
void ReferenceRowDot(const RowDotArgs& args) noexcept {
  const RowGroups layout = RowGroupsOf(dtype, args.k);
  for (int64_t i = 0; i < args.list.count; ++i) {
    const Row<dtype> row(args.list, i, layout);
    double sum = 0;
    for (int64_t b = 0; b < layout.blocks; ++b) {
      sum += BlockDot(row, b, args.x[b / kRowGroupBlocks]);
    }
    args.out[i] = static_cast<float>(sum);
  }
}

template <DType dtype>
void ReferenceRowScaledAdd(const RowScaledAddArgs& args) noexcept {
  const RowGroups layout = RowGroupsOf(dtype, args.k);
  const int64_t last = args.group_end * kRowGroupBlocks;
  const int64_t end = last < layout.blocks ? last : layout.blocks;
  for (int64_t i = 0; i < args.list.count; ++i) {
    const Row<dtype> row(args.list, i, layout);
    for (int64_t b = args.group_begin * kRowGroupBlocks; b < end; ++b) {
      const double scale = args.a[i] * row.Scale(b);
      const double minimum = args.a[i] * row.Minimum(b);
      for (int64_t j = 0; j < 32; ++j) {
        float& out = args.out[32 * b + j];
        out = static_cast<float>(out + (scale * (row.Code(b, j) - row.kOffset) + minimum));
      }
    }
  }
}

template void ReferenceRowDot<DType::kQ4_0>(const RowDotArgs&) noexcept;
template void ReferenceRowDot<DType::kQ4_1>(const RowDotArgs&) noexcept;
template void ReferenceRowDot<DType::kQ8_0>(const RowDotArgs&) noexcept;
template void ReferenceRowScaledAdd<DType::kQ4_0>(const RowScaledAddArgs&) noexcept;
template void ReferenceRowScaledAdd<DType::kQ4_1>(const RowScaledAddArgs&) noexcept;
template void ReferenceRowScaledAdd<DType::kQ8_0>(const RowScaledAddArgs&) noexcept;

}  // namespace hearth::kernels
