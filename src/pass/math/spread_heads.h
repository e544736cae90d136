// Turns pieces of heads so that what a few components have is spread over all of a piece.
//
// Keys often have a few components that are far larger than the others. With 16 codes these would
// take all of the range. Turned by a Hadamard transform the components that share a scale are
// alike; a dot product of two vectors that are both turned stays what it was.
#pragma once

#include <cstdint>

#include "ops/compute.h"
#include "tensor/view.h"

namespace hearth {

// In place, on every `range` consecutive components of each of `heads` heads of head_dim in every
// row, the last piece of a head may be shorter: an orthogonal transform. With p the largest power
// of two up to a piece's size: some signs are changed, then the first p components become H x /
// sqrt(p), with H the Hadamard matrix; where p is less than the size the same follows with the last
// p and other signs. The same bits on every ISA.
void SpreadHeads(Compute& compute, FloatView x, int64_t heads, int64_t head_dim, int64_t range);

}  // namespace hearth
