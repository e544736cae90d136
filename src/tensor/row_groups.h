// The bytes of a bundle row: k weights of 4 or 8 bits in the order that single neurons are computed
// in. The scales that a lane of 32 bits needs lie side by side, so that no kernel shuffles.
//
// A row is cut into groups of 16 blocks of 32 weights. A group is lines of 16 lanes; lane b of a
// line holds codes of block b, four bytes of them:
//   4 bits: 4 lines; line j holds codes 8j..8j+3 in the low and 8j+4..8j+7 in the high nibbles
//   8 bits: 8 lines; line j holds codes 4j..4j+3
// A last group of fewer than 16 blocks has as many lanes as blocks, rounded up to a multiple of 4
// (for vectors of 128 bits), and lines that much shorter. Padding lanes hold zeros.
//
//   0         codes, group after group
//   scales    one binary16 per lane, group after group
//   minimums  likewise, where the type has them
//
// Codes, scales and minimums mean what they mean in the GGUF block of the type (tensor/blocks.h).
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace hearth {

inline constexpr int64_t kRowGroupBlocks = 16;
inline constexpr int64_t kRowGroupWeights = 32 * kRowGroupBlocks;
inline constexpr int64_t kRowLaneBytes = 4;  // of a line
inline constexpr int64_t kRowLaneMultiple = 4;

// Where things lie in a row; bytes from its start. Group g has its codes at g * group_bytes, its
// scales (minimums) 2 * kRowGroupBlocks * g bytes after the row's first, line j at
// kRowLaneBytes * LanesOfGroup * j from the group's codes.
struct RowGroups {
  int64_t blocks;       // k / 32
  int64_t lanes;        // of all groups
  int64_t groups;       // the last of which may be short
  int64_t group_bytes;  // codes of a whole group
  int64_t scales;
  int64_t minimums;  // = bytes where the type has none
  int64_t bytes;     // of the row
};

// True for Q4_0, Q4_1 and Q8_0.
bool HasRowGroups(DType dtype);

// True for the types of rows that single neurons are computed from: those, and F16, whose numbers
// lie in order.
bool IsRowType(DType dtype);

// The layout of a row of k weights; all zeros for other types. k is a multiple of 32, not negative
// and below 2^40. A function of its own in a file of its own: kernels must not share inline code.
RowGroups RowGroupsOf(DType dtype, int64_t k) noexcept;

// Groups that k columns are cut into, whatever the type.
int64_t RowGroupCount(int64_t k) noexcept;

}  // namespace hearth
