// Products of weight tiles, code by code as tensor/weight_tiles.h describes them.
#include "kernels/reference_tiles.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tensor/half.h"

namespace hearth::kernels {
namespace {

// One row of a matrix of tiles.
template <DType dtype>
class TileRow {
 public:
  static constexpr TileFormat kFormat = TileFormatOf(dtype);

  TileRow(const TileMatMulArgs& a, int64_t row)
      : layout_(dtype, a.blocks * TileLayout::kBlockColumns),
        tile_(reinterpret_cast<const uint8_t*>(a.tiles) +
              static_cast<size_t>(row / TileLayout::kRows) * a.tile_bytes),
        lane_(row % TileLayout::kRows) {}

  double Dot(int64_t block, const BlockQ8& x) const {
    constexpr int kColumns = 32 / kFormat.scales_of_block;
    double result = 0;
    for (int part = 0; part < kFormat.scales_of_block; ++part) {
      int32_t products = 0;
      int32_t sum = 0;
      for (int i = part * kColumns; i < (part + 1) * kColumns; ++i) {
        products += (Code(block, i) - kFormat.code_offset) * x.codes[i];
        sum += x.codes[i];
      }
      result += Scale(block, part) * products;
      if (kFormat.has_minimums) result += Minimum(block, part) * sum;
    }
    return result * double{x.scale};
  }

 private:
  int32_t Code(int64_t block, int column) const {
    const uint8_t* lane = tile_ + layout_.codes_offset(block) + lane_ * 4 + column % 4;
    const int quad = column / 4;
    if (kFormat.code_bits == 8) return static_cast<int8_t>(lane[quad * 64]);
    const int low = lane[quad / 2 * 64] >> (quad % 2 * 4) & 15;
    if (kFormat.code_bits == 4) return low;
    const int high = kFormat.code_bits == 5 ? lane[4 * 64] >> quad & 1
                                            : lane[(4 + quad / 4) * 64] >> (quad % 4 * 2) & 3;
    return low | high << 4;
  }
  double Scale(int64_t block, int part) const {
    return Number(block, layout_.scales_offset(block), 0, part);
  }
  double Minimum(int64_t block, int part) const {
    return Number(block, layout_.minimums_offset(block), TileFormat::kHalvesBytes, part);
  }
  // A scale or minimum: one of those of the block, which begin at `own`, with the factor that lies
  // `factor` bytes into the group.
  double Number(int64_t block, size_t own, int64_t factor, int part) const {
    if (kFormat.scales == TileScales::kHalves) return HalfAt(tile_ + own);
    const uint8_t byte = tile_[own + static_cast<size_t>(part * TileLayout::kRows + lane_)];
    const int number = kFormat.is_signed_scale ? static_cast<int8_t>(byte) : byte;
    return HalfAt(tile_ + layout_.group_offset(block) + factor) * number;
  }
  double HalfAt(const uint8_t* halves) const {
    uint16_t half;
    std::memcpy(&half, halves + lane_ * 2, sizeof(half));
    return HalfToFloat(half);
  }

  TileLayout layout_;
  const uint8_t* tile_;
  int64_t lane_;
};

}  // namespace

template <DType dtype>
void ReferenceMatMulTiles(const TileMatMulArgs& a) noexcept {
  const int64_t row_begin = a.tile_begin * TileLayout::kRows;
  const int64_t row_end = std::min(a.rows, a.tile_end * TileLayout::kRows);
  for (int64_t t = 0; t < a.tokens; ++t) {
    const int64_t panel = t / kReferencePanelTokens * kReferencePanelTokens;
    const int64_t panel_size = std::min(kReferencePanelTokens, a.tokens - panel);
    const BlockQ8* x = a.x + panel * a.blocks + (t - panel);
    for (int64_t r = row_begin; r < row_end; ++r) {
      const TileRow<dtype> row(a, r);
      double sum = 0;
      for (int64_t b = 0; b < a.blocks; ++b) sum += row.Dot(b, x[b * panel_size]);
      a.out[t * a.out_stride + r - row_begin] = static_cast<float>(sum);
    }
  }
}

template void ReferenceMatMulTiles<DType::kQ4_0>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ4_1>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ5_0>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ5_1>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ8_0>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ4_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ5_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ6_K>(const TileMatMulArgs&) noexcept;

}  // namespace hearth::kernels
