// Published codes read as the rows of a GGUF tensor. Internal to import/.
#pragma once

#include <memory>

#include "import/quantized/coded_matrix.h"
#include "storage/block_reader.h"

namespace hearth {

// The narrowest type that holds scale * code for every code that `shape` allows, one scale for each
// of its blocks: Q4_0, Q5_0 or Q8_0. F16, which rounds each weight, where there is none: codes are
// floats or go further, or blocks of 32 columns do not lie within groups.
DType StoredAs(const CodeShape& shape);

// Rows that were decoded last, shared by the readers of a folder: rows may be asked for one by one.
class DecodedRows;
std::shared_ptr<DecodedRows> MakeDecodedRows();

// The matrix as StoredAs(matrix->shape()), row after row. Reading throws, naming the matrix:
// Error(kCorrupt) for codes beyond the range that the shape allows and for weights that are no
// numbers, Error(kUnsupported) for scales or weights beyond the range of F16.
std::unique_ptr<BlockReader> MakeCodedReader(std::unique_ptr<CodedMatrix> matrix,
                                             std::shared_ptr<DecodedRows> decoded);

}  // namespace hearth
