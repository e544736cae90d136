// How matrices of quantized weights lie in memory: 16 rows at a time, so that one vector holds the
// same few columns of 16 rows and no sum ever crosses lanes (MNN §5.1, the rearranged weights of
// MNN; the tile's height fits every vector width from 128 to 512 bits). kTileFormats has a row for
// each type.
//
// A tile is 16 rows; the last one of a matrix is padded with rows of zeros. Its columns are cut
// into blocks of 32. Some blocks in a row form a group, which lies without a gap: a head with the
// scales of all its blocks, then the codes of each block.
//
// Codes of a block: as many lines of 64 bytes as a code has bits. Lane r (32 bits) of a line
// belongs to row r. A quad is four columns in a row; byte i of a lane belongs to column i of its
// quads. 8-bit codes take a line for each of the 8 quads. Shorter ones are split into planes, which
// follow each other:
//   4 bits   line j of 4 has quad 2j in its low nibbles and quad 2j + 1 in its high ones
//   2 bits   line j of 2 has quads 4j .. 4j + 3, two bits each, from the lowest bits on
//   1 bit    bit q of the only line belongs to quad q
// Codes of 5 and 6 bits have their low four bits in the first plane, those of 3 bits their low two.
//
// Heads (TileScales):
//   kHalves  groups of 2 blocks: two times 16 binary16 scales, one for each row; then two times 16
//            minimums where the type has them. A matrix with an odd number of blocks ends with
//            half a group, whose head has zeros for the block that is missing.
//   kBytes   groups of 8 blocks, the super blocks of K types: 16 binary16 factors of scales, 16
//            negated factors of minimums (zeros where there are none); then 16 bytes for each
//            scale, block by block, and as many for the minimums.
//   kNibbles as kBytes, but a byte holds a scale in its low nibble and a minimum in its high one.
//   kSixBits as kBytes without minimums, but the bytes are the 12 that Q3_K packs its 16 scales
//            into, and 32 bytes of zeros before them.
//   kPowers  groups of 4 blocks: 16 bytes for each block, MXFP4's exponents. A matrix may end with
//            part of a group, after a whole head.
//   kSmallFloats  groups of 2 blocks: 16 bytes for each scale, block by block, NVFP4's.
// Codes and scales are those of the GGUF block types.
//
// Types whose codes are indices of grids, or digits, have neither head nor planes (kStored): a
// group is 16 blocks as the file has them, one of each row, and is unpacked while it is multiplied
// (kernels/stored/unpack.h). A tile ends with zeros up to a whole line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace hearth {

enum class TileScales : uint8_t {
  kHalves,
  kBytes,
  kNibbles,
  kSixBits,
  kPowers,
  kSmallFloats,
  kStored
};

struct TileFormat {
  DType dtype;
  int code_bits = 0;             // 0: the type has no tiles
  int code_offset = 0;           // a weight is scale * (code - offset) + minimum
  int scales_of_block = 1;       // 2: of 16 columns each
  bool has_minimums = false;     // as many as scales
  bool is_signed_scale = false;  // kBytes only
  TileScales scales = TileScales::kHalves;
  int64_t stored_columns = 0;  // kStored only: of a GGUF block
  int64_t stored_bytes = 0;

  static constexpr int64_t kRows = 16;
  static constexpr int64_t kHalvesBytes = 2 * kRows;  // 16 binary16

  constexpr bool is_stored() const { return scales == TileScales::kStored; }
  // Super blocks, which have factors of scales and minimums.
  constexpr bool has_factors() const {
    return scales == TileScales::kBytes || scales == TileScales::kNibbles ||
           scales == TileScales::kSixBits;
  }
  constexpr int64_t blocks_of_group() const {
    if (is_stored()) return stored_columns / 32;
    if (scales == TileScales::kPowers) return 4;
    return has_factors() ? 8 : 2;
  }
  // Of all scales of a block, or of all its minimums. (Those of kSixBits belong to no block alone.)
  constexpr int64_t scales_bytes() const {
    return scales == TileScales::kHalves ? kHalvesBytes : scales_of_block * kRows;
  }
  // Where the scales of a group begin; its minimums follow after them.
  constexpr int64_t scales_begin() const { return has_factors() ? 2 * kHalvesBytes : 0; }
  constexpr int64_t minimums_begin() const {
    if (scales == TileScales::kNibbles) return scales_begin();
    if (scales == TileScales::kSixBits) return scales_begin() + 12 * kRows;
    return scales_begin() + blocks_of_group() * scales_bytes();
  }
  constexpr int64_t head_bytes() const {
    return minimums_begin() + (has_minimums ? blocks_of_group() * scales_bytes() : 0);
  }
};

// A type that is unpacked while it is multiplied, to codes of 8 bits that are 64 too large: two
// products of neighbours fit 16 bits.
constexpr TileFormat StoredFormat(DType dtype, int64_t columns, int64_t bytes,
                                  int scales_of_block = 1) {
  return {.dtype = dtype,
          .code_bits = 8,
          .code_offset = 64,
          .scales_of_block = scales_of_block,
          .scales = TileScales::kStored,
          .stored_columns = columns,
          .stored_bytes = bytes};
}

inline constexpr TileFormat kTileFormats[] = {
    {.dtype = DType::kQ4_0, .code_bits = 4, .code_offset = 8},
    {.dtype = DType::kQ4_1, .code_bits = 4, .has_minimums = true},
    {.dtype = DType::kQ5_0, .code_bits = 5, .code_offset = 16},
    {.dtype = DType::kQ5_1, .code_bits = 5, .has_minimums = true},
    {.dtype = DType::kQ8_0, .code_bits = 8},
    {.dtype = DType::kIQ4_NL, .code_bits = 4},
    {.dtype = DType::kMXFP4, .code_bits = 4, .scales = TileScales::kPowers},
    {.dtype = DType::kNVFP4,
     .code_bits = 4,
     .scales_of_block = 2,
     .scales = TileScales::kSmallFloats},
    {.dtype = DType::kIQ4_XS,
     .code_bits = 4,
     .is_signed_scale = true,
     .scales = TileScales::kBytes},
    {.dtype = DType::kQ2_K,
     .code_bits = 2,
     .scales_of_block = 2,
     .has_minimums = true,
     .scales = TileScales::kNibbles},
    {.dtype = DType::kQ3_K,
     .code_bits = 3,
     .code_offset = 4,
     .scales_of_block = 2,
     .scales = TileScales::kSixBits},
    {.dtype = DType::kQ4_K, .code_bits = 4, .has_minimums = true, .scales = TileScales::kBytes},
    {.dtype = DType::kQ5_K, .code_bits = 5, .has_minimums = true, .scales = TileScales::kBytes},
    {.dtype = DType::kQ6_K,
     .code_bits = 6,
     .code_offset = 32,
     .scales_of_block = 2,
     .is_signed_scale = true,
     .scales = TileScales::kBytes},
    StoredFormat(DType::kIQ3_XXS, 256, sizeof(BlockIQ3_XXS)),
    StoredFormat(DType::kIQ3_S, 256, sizeof(BlockIQ3_S)),
    StoredFormat(DType::kIQ2_XXS, 256, sizeof(BlockIQ2_XXS)),
    StoredFormat(DType::kIQ2_XS, 256, sizeof(BlockIQ2_XS), 2),
    StoredFormat(DType::kIQ2_S, 256, sizeof(BlockIQ2_S), 2),
    StoredFormat(DType::kIQ1_S, 256, sizeof(BlockIQ1_S)),
    StoredFormat(DType::kIQ1_M, 256, sizeof(BlockIQ1_M), 2),
    StoredFormat(DType::kTQ1_0, 256, sizeof(BlockTQ1_0)),
    StoredFormat(DType::kTQ2_0, 256, sizeof(BlockTQ2_0)),
    StoredFormat(DType::kQ1_0, 128, sizeof(BlockQ1_0)),
};

constexpr TileFormat TileFormatOf(DType dtype) {
  for (const TileFormat& format : kTileFormats) {
    if (format.dtype == dtype) return format;
  }
  return {.dtype = dtype};
}

struct TileLayout {
  static constexpr int64_t kRows = TileFormat::kRows;
  static constexpr int64_t kBlockColumns = 32;
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kScalesBytes = TileFormat::kHalvesBytes;  // kHalves: of one block

  TileFormat format;
  int64_t blocks = 0;  // per row

  // dtype is one that IsTiled; cols a multiple of 32 and of a GGUF block.
  TileLayout(DType dtype, int64_t cols)
      : format(TileFormatOf(dtype)), blocks(cols / kBlockColumns) {}

  static constexpr bool IsTiled(DType dtype) { return TileFormatOf(dtype).code_bits > 0; }
  static int64_t TilesFor(int64_t rows) { return (rows + kRows - 1) / kRows; }

  size_t block_code_bytes() const { return static_cast<size_t>(format.code_bits) * kLineBytes; }
  size_t head_bytes() const { return static_cast<size_t>(format.head_bytes()); }
  size_t group_bytes() const {
    if (format.is_stored()) return static_cast<size_t>(kRows * format.stored_bytes);
    return head_bytes() + static_cast<size_t>(format.blocks_of_group()) * block_code_bytes();
  }

  // Where the parts of a block, or of its group, begin in its tile. kStored: group_offset alone.
  size_t group_offset(int64_t block) const {
    return static_cast<size_t>(block / format.blocks_of_group()) * group_bytes();
  }
  size_t scales_offset(int64_t block) const {
    return PartOffset(block, format.scales_begin(), format.scales_bytes());
  }
  size_t minimums_offset(int64_t block) const {
    return PartOffset(block, format.minimums_begin(), format.scales_bytes());
  }
  size_t codes_offset(int64_t block) const {
    return PartOffset(block, format.head_bytes(), static_cast<int64_t>(block_code_bytes()));
  }

  // A multiple of kLineBytes.
  size_t tile_bytes() const {
    if (format.is_stored())
      return (group_offset(blocks) + kLineBytes - 1) / kLineBytes * kLineBytes;
    const int64_t rest = blocks % format.blocks_of_group();
    const size_t rest_bytes = head_bytes() + static_cast<size_t>(rest) * block_code_bytes();
    return group_offset(blocks) + (rest > 0 ? rest_bytes : 0);
  }
  size_t matrix_bytes(int64_t rows) const {
    return static_cast<size_t>(TilesFor(rows)) * tile_bytes();
  }

 private:
  // Of the part that begins `in_group` bytes into a group and is `bytes` long for each block.
  size_t PartOffset(int64_t block, int64_t in_group, int64_t bytes) const {
    return group_offset(block) +
           static_cast<size_t>(in_group + block % format.blocks_of_group() * bytes);
  }
};

}  // namespace hearth
