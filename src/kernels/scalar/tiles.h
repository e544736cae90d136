// The scalar table's products of weight tiles; table.cc puts them into it.
#pragma once

#include "kernels/kernel_table.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels {

// Defined for the types of kTileFormats.
template <DType dtype>
void ReferenceMatMulTiles(const TileMatMulArgs& args) noexcept;
template <DType dtype>
void ReferenceTileFloats(const TileFloatsArgs& args) noexcept;
void ReferenceColumnsTimesTokens(const ColumnsTimesTokensArgs& args) noexcept;

template <size_t index = 0>
constexpr void SetReferenceTiles(KernelTable& table) {
  if constexpr (index < std::size(kTileFormats)) {
    constexpr DType kDType = kTileFormats[index].dtype;
    table.matmul_tiles[static_cast<int>(kDType)] = ReferenceMatMulTiles<kDType>;
    table.tile_floats[static_cast<int>(kDType)] = ReferenceTileFloats<kDType>;
    SetReferenceTiles<index + 1>(table);
  } else {
    table.columns_times_tokens = ReferenceColumnsTimesTokens;
  }
}

}  // namespace hearth::kernels
