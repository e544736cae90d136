// Products of weight tiles, code by code as tensor/weight_tiles.h describes them. Stored blocks are
// unpacked as everywhere: dequantize_test.cc holds that against the reference of the formats.
#include "kernels/scalar/tiles.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "kernels/stored/unpack.h"
#include "kernels/weight_tables.h"
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
  // What a code stands for, but for the offset.
  int32_t Code(int64_t block, int column) const {
    const uint8_t* lane = tile_ + layout_.codes_offset(block) + lane_ * 4 + column % 4;
    const int quad = column / 4;
    if (kFormat.code_bits == 8) return static_cast<int8_t>(lane[quad * 64]);
    constexpr bool kHasNibbles = kFormat.code_bits >= 4;
    const int low = kHasNibbles ? lane[quad / 2 * 64] >> (quad % 2 * 4) & 15
                                : lane[quad / 4 * 64] >> (quad % 4 * 2) & 3;
    if (dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS) return kIq4NlValues[low];
    if (dtype == DType::kMXFP4 || dtype == DType::kNVFP4) return kMxfp4DoubledValues[low];
    constexpr int kLowBits = kHasNibbles ? 4 : 2;
    if (kFormat.code_bits == kLowBits) return low;
    const uint8_t* high = lane + kLowBits * 64;
    if (kFormat.code_bits == kLowBits + 1) return low | (high[0] >> quad & 1) << kLowBits;
    return low | (high[quad / 4 * 64] >> (quad % 4 * 2) & 3) << kLowBits;
  }
  double Scale(int64_t block, int part) const {
    const uint8_t* own = tile_ + layout_.scales_offset(block) + part * TileLayout::kRows + lane_;
    const uint8_t* group = tile_ + layout_.group_offset(block);
    switch (kFormat.scales) {
      case TileScales::kHalves:
        return HalfAt(tile_ + layout_.scales_offset(block));
      case TileScales::kBytes:
        return HalfAt(group) * (kFormat.is_signed_scale ? static_cast<int8_t>(*own) : *own);
      case TileScales::kNibbles:
        return HalfAt(group) * (*own & 15);
      case TileScales::kSixBits: {
        uint8_t packed[12];
        for (int i = 0; i < 12; ++i) {
          packed[i] = group[kFormat.scales_begin() + i * TileLayout::kRows + lane_];
        }
        return HalfAt(group) * Q3Scale(packed, static_cast<int>(block % 8 * 2) + part);
      }
      case TileScales::kSmallFloats:
        return Nvfp4HalfScale(*own);
      case TileScales::kPowers:
        return Mxfp4HalfScale(*own);
      case TileScales::kStored:
        break;
    }
    return 0;
  }
  double Minimum(int64_t block, int part) const {
    const uint8_t* own = tile_ + layout_.minimums_offset(block);
    if (kFormat.scales == TileScales::kHalves) return HalfAt(own);
    const uint8_t byte = own[part * TileLayout::kRows + lane_];
    const uint8_t* factors = tile_ + layout_.group_offset(block) + TileFormat::kHalvesBytes;
    return HalfAt(factors) * (kFormat.scales == TileScales::kNibbles ? byte >> 4 : byte);
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

// The same of stored blocks, one of which is kept unpacked.
template <DType dtype>
class StoredRow {
 public:
  static constexpr TileFormat kFormat = TileFormatOf(dtype);

  StoredRow(const TileMatMulArgs& a, int64_t row)
      : layout_(dtype, a.blocks * TileLayout::kBlockColumns),
        tile_(a.tiles + static_cast<size_t>(row / TileLayout::kRows) * a.tile_bytes),
        lane_(row % TileLayout::kRows) {}

  double Dot(int64_t block, const BlockQ8& x) {
    constexpr int kColumns = 32 / kFormat.scales_of_block;
    const int64_t which = block % kFormat.blocks_of_group();
    if (which == 0) {
      UnpackBlock(dtype, tile_ + layout_.group_offset(block) + lane_ * kFormat.stored_bytes, own_);
    }
    double result = 0;
    for (int part = 0; part < kFormat.scales_of_block; ++part) {
      int32_t products = 0;
      for (int i = part * kColumns; i < (part + 1) * kColumns; ++i) {
        products += (own_.codes[which * 32 + i] - kFormat.code_offset) * x.codes[i];
      }
      result += double{own_.scales[which * kFormat.scales_of_block + part]} * products;
    }
    return result * double{x.scale};
  }

 private:
  TileLayout layout_;
  const std::byte* tile_;
  int64_t lane_;
  UnpackedBlock own_;
};

template <DType dtype>
using RowOf = std::conditional_t<TileFormatOf(dtype).is_stored(), StoredRow<dtype>, TileRow<dtype>>;

}  // namespace

template <DType dtype>
void ReferenceMatMulTiles(const TileMatMulArgs& a) noexcept {
  const int64_t row_begin = a.tile_begin * TileLayout::kRows;
  const int64_t row_end = std::min(a.rows, a.tile_end * TileLayout::kRows);
  for (int64_t t = 0; t < a.tokens; ++t) {
    const int64_t panel = t / a.geometry.panel_tokens * a.geometry.panel_tokens;
    const int64_t panel_size = std::min(a.geometry.panel_tokens, a.tokens - panel);
    const BlockQ8* x = a.x + panel * a.blocks + (t - panel);
    for (int64_t r = row_begin; r < row_end; ++r) {
      RowOf<dtype> row(a, r);
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
template void ReferenceMatMulTiles<DType::kIQ4_NL>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kMXFP4>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kNVFP4>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ4_XS>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ2_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ3_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ4_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ5_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ6_K>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ3_XXS>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ3_S>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ2_XXS>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ2_XS>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ2_S>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ1_S>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kIQ1_M>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kTQ1_0>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kTQ2_0>(const TileMatMulArgs&) noexcept;
template void ReferenceMatMulTiles<DType::kQ1_0>(const TileMatMulArgs&) noexcept;

}  // namespace hearth::kernels
