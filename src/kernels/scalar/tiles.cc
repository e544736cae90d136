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

  // Row `row` of a tile whose rows have `blocks` blocks.
  TileRow(const std::byte* tile, int64_t blocks, int64_t row)
      : layout_(dtype, blocks * TileLayout::kBlockColumns),
        tile_(reinterpret_cast<const uint8_t*>(tile)),
        lane_(row) {}

  float Weight(int64_t block, int i) const {
    const int part = i * kFormat.scales_of_block / 32;
    const auto scale = static_cast<float>(Scale(block, part));
    const float weight = scale * static_cast<float>(Code(block, i) - kFormat.code_offset);
    return kFormat.has_minimums ? weight + static_cast<float>(Minimum(block, part)) : weight;
  }

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

  StoredRow(const std::byte* tile, int64_t blocks, int64_t row)
      : layout_(dtype, blocks * TileLayout::kBlockColumns), tile_(tile), lane_(row) {}

  float Weight(int64_t block, int i) {
    const int64_t which = Unpack(block);
    const int64_t part = which * kFormat.scales_of_block + i * kFormat.scales_of_block / 32;
    return own_.scales[part] * static_cast<float>(own_.codes[which * 32 + i] - kFormat.code_offset);
  }
  double Dot(int64_t block, const BlockQ8& x) {
    constexpr int kColumns = 32 / kFormat.scales_of_block;
    const int64_t which = Unpack(block);
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
  // Returns which of its group's blocks it is.
  int64_t Unpack(int64_t block) {
    const int64_t which = block % kFormat.blocks_of_group();
    if (block - which != unpacked_) {
      UnpackBlock(dtype, tile_ + layout_.group_offset(block) + lane_ * kFormat.stored_bytes, own_);
      unpacked_ = block - which;
    }
    return which;
  }

  TileLayout layout_;
  const std::byte* tile_;
  int64_t lane_;
  int64_t unpacked_ = -1;  // the first block of the group that own_ has
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
      const std::byte* tile = a.tiles + static_cast<size_t>(r / TileLayout::kRows) * a.tile_bytes;
      RowOf<dtype> row(tile, a.blocks, r % TileLayout::kRows);
      double sum = 0;
      for (int64_t b = 0; b < a.blocks; ++b) sum += row.Dot(b, x[b * panel_size]);
      a.out[t * a.out_stride + r - row_begin] = static_cast<float>(sum);
    }
  }
}

template <DType dtype>
void ReferenceTileFloats(const TileFloatsArgs& a) noexcept {
  for (int64_t r = 0; r < TileLayout::kRows; ++r) {
    RowOf<dtype> row(a.tile, a.first + a.count, r);
    for (int64_t b = 0; b < a.count; ++b) {
      for (int i = 0; i < 32; ++i) {
        a.out[(32 * b + i) * TileLayout::kRows + r] = row.Weight(a.first + b, i);
      }
    }
  }
}

void ReferenceColumnsTimesTokens(const ColumnsTimesTokensArgs& a) noexcept {
  for (int64_t t = 0; t < a.tokens; ++t) {
    for (int64_t r = 0; r < TileLayout::kRows; ++r) {
      double sum = a.out[t * TileLayout::kRows + r];
      for (int64_t i = 0; i < a.count; ++i) {
        sum += double{a.columns[i * TileLayout::kRows + r]} * a.x[t * a.x_stride + i];
      }
      a.out[t * TileLayout::kRows + r] = static_cast<float>(sum);
    }
  }
}

#define HEARTH_REFERENCE_TILES(dtype)                                        \
  template void ReferenceMatMulTiles<dtype>(const TileMatMulArgs&) noexcept; \
  template void ReferenceTileFloats<dtype>(const TileFloatsArgs&) noexcept;
HEARTH_REFERENCE_TILES(DType::kQ4_0)
HEARTH_REFERENCE_TILES(DType::kQ4_1)
HEARTH_REFERENCE_TILES(DType::kQ5_0)
HEARTH_REFERENCE_TILES(DType::kQ5_1)
HEARTH_REFERENCE_TILES(DType::kQ8_0)
HEARTH_REFERENCE_TILES(DType::kIQ4_NL)
HEARTH_REFERENCE_TILES(DType::kMXFP4)
HEARTH_REFERENCE_TILES(DType::kNVFP4)
HEARTH_REFERENCE_TILES(DType::kIQ4_XS)
HEARTH_REFERENCE_TILES(DType::kQ2_K)
HEARTH_REFERENCE_TILES(DType::kQ3_K)
HEARTH_REFERENCE_TILES(DType::kQ4_K)
HEARTH_REFERENCE_TILES(DType::kQ5_K)
HEARTH_REFERENCE_TILES(DType::kQ6_K)
HEARTH_REFERENCE_TILES(DType::kIQ3_XXS)
HEARTH_REFERENCE_TILES(DType::kIQ3_S)
HEARTH_REFERENCE_TILES(DType::kIQ2_XXS)
HEARTH_REFERENCE_TILES(DType::kIQ2_XS)
HEARTH_REFERENCE_TILES(DType::kIQ2_S)
HEARTH_REFERENCE_TILES(DType::kIQ1_S)
HEARTH_REFERENCE_TILES(DType::kIQ1_M)
HEARTH_REFERENCE_TILES(DType::kTQ1_0)
HEARTH_REFERENCE_TILES(DType::kTQ2_0)
HEARTH_REFERENCE_TILES(DType::kQ1_0)
#undef HEARTH_REFERENCE_TILES

}  // namespace hearth::kernels
