// Bundle rows one weight at a time, found by the description in tensor/row_groups.h. Sums are in
// double, as in table.cc, but for those whose order the contract fixes.
#include "kernels/scalar/rows.h"

#include <cstring>

#include "base/checksum.h"
#include "kernels/tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/row_groups.h"
#include "tensor/weight_tiles.h"

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

// Where the sums of weight i of all blocks begin.
int64_t SumIndex(int64_t tokens, int64_t token, int64_t i) {
  return (i / kQuarterWeights * tokens + token) * kQuarterSums + i % kQuarterWeights * 16;
}

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

template <DType dtype>
void ReferenceRowsToTile(const RowsToTileArgs& args) noexcept {
  const RowGroups layout = RowGroupsOf(dtype, args.k);
  const TileLayout tile(dtype, args.k);
  constexpr bool kIs8Bit = dtype == DType::kQ8_0;
  std::memset(args.tile, 0, tile.tile_bytes());
  const auto put_half = [&](size_t begin, int64_t r, double value) {
    const HalfBits bits = FloatToHalf(static_cast<float>(value));
    std::memcpy(args.tile + begin + static_cast<size_t>(2 * r), &bits, sizeof(bits));
  };
  for (int64_t r = 0; r < args.list.count; ++r) {
    const Row<dtype> row(args.list, r, layout);
    for (int64_t b = 0; b < layout.blocks; ++b) {
      for (int64_t i = 0; i < 32; ++i) {
        std::byte* codes = args.tile + tile.codes_offset(b);
        std::byte& byte = codes[i / (kIs8Bit ? 4 : 8) * 64 + 4 * r + i % 4];
        const auto code = static_cast<std::byte>(row.Code(b, i));
        byte |= !kIs8Bit && i % 8 >= 4 ? code << 4 : code;
      }
      put_half(tile.scales_offset(b), r, row.Scale(b));
      if (tile.format.has_minimums) put_half(tile.minimums_offset(b), r, row.Minimum(b));
    }
  }
}

template <DType dtype>
void ReferenceRowsTimesTokens(const RowsTimesTokensArgs& args) noexcept {
  for (int64_t t = 0; t < args.tokens; ++t) {
    const GroupQ8* x = args.x + t * RowGroupsOf(dtype, args.k).groups;
    for (int32_t e = args.begin[t]; e < args.begin[t + 1]; ++e) {
      const RowList row = {args.list.base, args.list.stride, args.list.rows + args.places[e], 1};
      ReferenceRowDot<dtype>({row, args.k, x, args.out + e});
    }
  }
}

template <DType dtype>
void ReferenceRowsToSums(const RowsToSumsArgs& args) noexcept {
  const RowGroups layout = RowGroupsOf(dtype, args.k);
  const int64_t first = args.group * kRowGroupBlocks;
  const int64_t left = layout.blocks - first;
  const int64_t blocks = left < kRowGroupBlocks ? left : kRowGroupBlocks;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int32_t e = args.begin[t]; e < args.begin[t + 1]; ++e) {
      const Row<dtype> row(args.list, args.places[e], layout);
      for (int64_t b = 0; b < blocks; ++b) {
        const double scale = args.a[e] * row.Scale(first + b);
        const double minimum = args.a[e] * row.Minimum(first + b);
        for (int64_t i = 0; i < 32; ++i) {
          float& sum = args.sums[SumIndex(args.tokens, t, i) + b];
          sum =
              static_cast<float>(sum + (scale * (row.Code(first + b, i) - row.kOffset) + minimum));
        }
      }
    }
  }
}

void ReferenceSumsToColumns(const float* sums, int64_t tokens, int64_t token, int64_t blocks,
                            float* out) noexcept {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t i = 0; i < 32; ++i) {
      out[32 * b + i] = sums[SumIndex(tokens, token, i) + b];
    }
  }
}

int64_t ReferencePackFired(const PackFiredArgs& a) noexcept {
  for (int64_t word = 0; a.fired != nullptr && word < (a.count + 63) / 64; ++word) {
    a.fired[word] = 0;
  }
  int64_t packed = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const float gate = a.gates[i];
    if (gate <= a.below || (gate >= a.from && gate <= a.to)) continue;
    if (a.allowed != nullptr && (a.allowed[i / 64] >> i % 64 & 1) == 0) continue;
    if (a.fired != nullptr) a.fired[i / 64] |= uint64_t{1} << i % 64;
    a.out_neurons[packed] = a.neurons[i];
    a.out_gates[packed++] = gate;
  }
  return packed;
}

void ReferenceXxh32Rows(const RowHashArgs& args) noexcept {
  const RowList& list = args.list;
  for (int64_t i = 0; i < list.count; ++i) {
    const std::byte* row = list.base + list.stride * static_cast<size_t>(list.rows[i]);
    args.out[i] = Xxh32({row, args.bytes});
  }
}

template void ReferenceRowDot<DType::kQ4_0>(const RowDotArgs&) noexcept;
template void ReferenceRowDot<DType::kQ4_1>(const RowDotArgs&) noexcept;
template void ReferenceRowDot<DType::kQ8_0>(const RowDotArgs&) noexcept;
template void ReferenceRowScaledAdd<DType::kQ4_0>(const RowScaledAddArgs&) noexcept;
template void ReferenceRowScaledAdd<DType::kQ4_1>(const RowScaledAddArgs&) noexcept;
template void ReferenceRowScaledAdd<DType::kQ8_0>(const RowScaledAddArgs&) noexcept;
template void ReferenceRowsToTile<DType::kQ4_0>(const RowsToTileArgs&) noexcept;
template void ReferenceRowsToTile<DType::kQ4_1>(const RowsToTileArgs&) noexcept;
template void ReferenceRowsToTile<DType::kQ8_0>(const RowsToTileArgs&) noexcept;
template void ReferenceRowsTimesTokens<DType::kQ4_0>(const RowsTimesTokensArgs&) noexcept;
template void ReferenceRowsTimesTokens<DType::kQ4_1>(const RowsTimesTokensArgs&) noexcept;
template void ReferenceRowsTimesTokens<DType::kQ8_0>(const RowsTimesTokensArgs&) noexcept;
template void ReferenceRowsToSums<DType::kQ4_0>(const RowsToSumsArgs&) noexcept;
template void ReferenceRowsToSums<DType::kQ4_1>(const RowsToSumsArgs&) noexcept;
template void ReferenceRowsToSums<DType::kQ8_0>(const RowsToSumsArgs&) noexcept;

}  // namespace hearth::kernels
