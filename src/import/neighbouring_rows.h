// The order of rows of queries and keys that GGUF has for rotations of neighbours.
#pragma once

#include <cstdint>

#include "storage/region.h"

namespace hearth {

// Published files rotate components that are half a head apart, GGUF files those side by side: of
// the rows of each head (head_dim of them, an even number) of a tensor at `from`, row i of the
// first half becomes row 2i, row i of the second half row 2i + 1. `heads` and head_dim are 1 or
// more.
inline Region NeighbouringRows(size_t source, uint64_t from, uint64_t heads, uint64_t head_dim,
                               uint64_t row_bytes) {
  const uint64_t half = head_dim / 2;
  return {.source = source,
          .from = from,
          .bytes = row_bytes,
          .loops = {{{.count = heads, .from_step = head_dim * row_bytes},
                     {.count = half, .from_step = row_bytes},
                     {.count = 2, .from_step = half * row_bytes}}}};
}

}  // namespace hearth
