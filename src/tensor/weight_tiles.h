// How matrices of 4- and 8-bit weights lie in memory: 16 rows at a time, so that one vector holds
// the same few columns of 16 rows and no sum ever crosses lanes (MNN §5.1, the rearranged
// weights of MNN; the tile's height fits every vector width from 128 to 512 bits).
//
// A tile is 16 rows; the last one of a matrix is padded with rows of zeros. Its blocks of 32
// columns lie two and two, so that whoever multiplies walks through memory without a gap. A pair is
//   scales    2 times 16 binary16, one per row
//   minimums  likewise, Q4_1 only
//   codes     2 times 4 lines (4-bit) or 8 lines (8-bit) of 64 bytes. Lane r (32 bits) of a line
//             belongs to row r. 4-bit: byte i of line j holds code 8j + i in its low nibble and
//             code 8j + 4 + i in its high one. 8-bit: byte i of line j is code 4j + i.
// Of an odd number of blocks the last has zeros for the scales (and minimums) of its neighbour, and
// no codes for it. Codes are those of the GGUF block types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hearth {

struct TileLayout {
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kBlockColumns = 32;
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kScalesBytes = 2 * kRows;  // of one block of all rows

  int64_t blocks = 0;          // per row
  int64_t lines_of_block = 0;  // of codes
  bool has_minimums = false;

  // dtype is one that IsTiled; cols a multiple of 32.
  TileLayout(DType dtype, int64_t cols)
      : blocks(cols / kBlockColumns),
        lines_of_block(dtype == DType::kQ8_0 ? 8 : 4),
        has_minimums(dtype == DType::kQ4_1) {}

  static constexpr bool IsTiled(DType dtype) {
    return dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ8_0;
  }
  static int64_t TilesFor(int64_t rows) { return (rows + kRows - 1) / kRows; }

  size_t block_code_bytes() const { return static_cast<size_t>(lines_of_block) * kLineBytes; }
  // Of a pair's scales and minimums.
  size_t pair_scales_bytes() const { return (has_minimums ? 2 : 1) * 2 * kScalesBytes; }
  size_t pair_bytes() const { return pair_scales_bytes() + 2 * block_code_bytes(); }

  // Where a block's parts begin in its tile.
  size_t scales_offset(int64_t block) const { return PartOffset(block, 0, kScalesBytes); }
  size_t minimums_offset(int64_t block) const {
    return PartOffset(block, 2 * kScalesBytes, kScalesBytes);
  }
  size_t codes_offset(int64_t block) const {
    return PartOffset(block, pair_scales_bytes(), block_code_bytes());
  }

  // A multiple of kLineBytes.
  size_t tile_bytes() const {
    const auto pairs = static_cast<size_t>(blocks / 2);
    const auto single = static_cast<size_t>(blocks % 2);
    return pairs * pair_bytes() + single * (pair_scales_bytes() + block_code_bytes());
  }
  size_t matrix_bytes(int64_t rows) const {
    return static_cast<size_t>(TilesFor(rows)) * tile_bytes();
  }

 private:
  // Of the part that begins `in_pair` bytes into a pair and is `bytes` long for each block.
  size_t PartOffset(int64_t block, size_t in_pair, size_t bytes) const {
    return static_cast<size_t>(block / 2) * pair_bytes() + in_pair +
           static_cast<size_t>(block % 2) * bytes;
  }
};

}  // namespace hearth
