// Turns heads so that what a few components have is spread over all of them.
//
// Keys often have a few components that are far larger than the others. With 16 codes for all
// of a key these would take all of the range. Turned by a Hadamard transform the components are
// alike; a dot product of two vectors that are both turned stays what it was.
#pragma once

#include <cstdint>

#include "ops/compute.h"
#include "tensor/view.h"

namespace hearth {

// In place, on `heads` consecutive pieces of head_dim in every row: an orthogonal transform, the
// same for all. With p the largest power of two up to head_dim: some signs are changed, then the
// first p components become H x / sqrt(p), with H the Hadamard matrix; where p is less than
// head_dim the same follows with the last p and other signs. The same bits on every ISA.
void SpreadHeads(Compute& compute, FloatView x, int64_t heads, int64_t head_dim);

}  // namespace hearth
