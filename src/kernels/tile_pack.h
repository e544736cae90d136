// GGUF rows of blocks to weight tiles (tensor/weight_tiles.h) and back. Exact both ways.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight_tiles.h"

namespace hearth::kernels {

// Packs rows [0, num_rows) of blocks, `row_bytes` apart, into consecutive tiles from `tiles` on;
// the rows that the last tile lacks become zeros. `tiles` is aligned to 4 bytes.
void PackTiles(DType dtype, const TileLayout& layout, const std::byte* rows, size_t row_bytes,
               int64_t num_rows, std::byte* tiles);

// Row `row` of a matrix of tiles as GGUF blocks.
void UnpackTileRow(DType dtype, const TileLayout& layout, const std::byte* tiles, int64_t row,
                   std::byte* blocks);

}  // namespace hearth::kernels
