// Matrices whose numbers lie in another order: transposed, or every second one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "storage/block_reader.h"

namespace hearth {

// `matrices` matrices of rows x cols numbers, in a source whose numbers lie these steps apart.
// Steps and sizes count numbers.
struct Strides {
  uint64_t begin_bytes = 0;  // of the first number in the source
  uint64_t number_bytes = 4;
  uint64_t matrices = 1;
  uint64_t rows = 1;
  uint64_t cols = 1;
  uint64_t matrix_step = 0;
  uint64_t row_step = 1;
  uint64_t col_step = 1;
};

// Reads the numbers matrix by matrix, row by row. All that `strides` reaches must lie inside
// `source`, which must outlive the reader; sizes are 1 or more. Rows of a transposed matrix
// (col_step > row_step) are read many at a time: a read of whole rows is far faster than one of a
// few.
std::unique_ptr<BlockReader> MakeStridedReader(const BlockReader& source, const Strides& strides,
                                               std::string name);

}  // namespace hearth
