// The scalar table's products of weight tiles; table.cc puts them into it.
#pragma once

#include "kernels/kernel_table.h"
#include "tensor/weight_tiles.h"

namespace hearth::kernels {

// Defined for the types of kTileFormats.
template <DType dtype>
void ReferenceMatMulTiles(const TileMatMulArgs& args) noexcept;

template <size_t index = 0>
constexpr void SetReferenceTiles(KernelTable& table) {
  if constexpr (index < std::size(kTileFormats)) {
    constexpr DType kDType = kTileFormats[index].dtype;
    table.matmul_tiles[static_cast<int>(kDType)] = ReferenceMatMulTiles<kDType>;
    SetReferenceTiles<index + 1>(table);
  }
}

}  // namespace hearth::kernels
