// Weight tiles whose codes lie in planes (tensor/weight_tiles.h), to and from GGUF blocks. Exact
// both ways. tile_pack.h is the door.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight_tiles.h"

namespace hearth::kernels {

// Packs `lanes` <= 16 rows of blocks, `row_bytes` apart, into one tile; lanes that are missing
// become zeros. Returns false for types that are not packed here.
bool PackPlaneTile(DType dtype, const TileLayout& layout, const std::byte* rows, size_t row_bytes,
                   int64_t lanes, uint8_t* tile);

// Lane `lane` of a tile as GGUF blocks. Returns false likewise.
bool UnpackPlaneRow(DType dtype, const TileLayout& layout, const uint8_t* tile, int64_t lane,
                    std::byte* blocks);

}  // namespace hearth::kernels
