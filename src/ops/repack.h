// Weights from the type they are stored in to the type they are multiplied in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/view.h"

namespace hearth {

// Float or quantized: whether matrices of this stored type can be multiplied.
bool IsWeightType(DType stored);

// The type that a matrix of this stored type has in memory: itself where a kernel takes it, else
// ConvertedType. Throws Error(kUnsupported) for types that are no weights (I8, F64, ...).
DType ResidentType(DType stored, std::span<const std::byte> sample, int64_t cols);

// The type that weights are converted to for kernels that do not take their own: itself where
// conversion has no target for it. Where there is a choice (4-bit types: Q4_1 or Q8_0), the smaller
// one unless its error on `sample` (some rows of the matrix, `cols` weights each) is over 1% of the
// weights' root mean square.
DType ConvertedType(DType stored, std::span<const std::byte> sample, int64_t cols);

// Converts rows * cols weights. cols is a multiple of both block sizes.
void RepackRows(DType from, std::span<const std::byte> in, int64_t rows, int64_t cols, DType to,
                std::byte* out);

// Rows of a type that has a tiled kernel (TileLayout::IsTiled) to tiles (tensor/weight_tiles.h). A
// last tile that is not full is filled up with zeros.
void PackTiles(DType dtype, std::span<const std::byte> in, int64_t rows, int64_t cols,
               std::byte* tiles);

// Stored rows as the matrix `as` holds them in memory, in its type and in tiles where it has them;
// then the first row begins a tile. `scratch` is for rows in between, and grows to fit.
void MakeResident(DType stored, std::span<const std::byte> in, int64_t rows, const WeightView& as,
                  std::byte* out, std::vector<std::byte>& scratch);

// Any float or quantized type to F32 and back, for vectors and tools.
void ToFloat(DType from, std::span<const std::byte> in, std::span<float> out);

}  // namespace hearth
