#include "kernels/plane_pack.h"

#include <cstring>
#include <type_traits>

#include "kernels/block_quads.h"

namespace hearth::kernels {
namespace {

constexpr int kQuads = 8;  // of 32 columns
constexpr size_t kLine = TileLayout::kLineBytes;
constexpr int64_t kRows = TileLayout::kRows;

// Words of four rows; compilers turn these into what the machine has.
typedef uint32_t Words __attribute__((vector_size(16)));

// The quads of a block's 32 columns as its lines of code_bits planes. `lane` is the first line's.
template <int code_bits, class Word>
void StorePlanes(const Word (&quads)[kQuads], uint8_t* lane) {
  const auto store = [&](Word word) {
    std::memcpy(lane, &word, sizeof(word));
    lane += kLine;
  };
  static_assert(code_bits >= 4 && code_bits <= 6);
  for (int q = 0; q < kQuads; q += 2) {
    store((quads[q] & 0x0f0f0f0f) | (quads[q + 1] & 0x0f0f0f0f) << 4);
  }
  if constexpr (code_bits == 5) {
    Word line = quads[0] >> 4 & 0x01010101;
    for (int q = 1; q < kQuads; ++q) line |= (quads[q] >> 4 & 0x01010101) << q;
    store(line);
  }
  if constexpr (code_bits == 6) {
    for (int q = 0; q < kQuads; q += 4) {
      Word line = quads[q] >> 4 & 0x03030303;
      for (int i = 1; i < 4; ++i) line |= (quads[q + i] >> 4 & 0x03030303) << (2 * i);
      store(line);
    }
  }
}

// The way back for one row.
template <int code_bits>
void LoadPlanes(const uint8_t* lane, uint32_t (&quads)[kQuads]) {
  const auto line = [&](int j) {
    uint32_t word;
    std::memcpy(&word, lane + static_cast<size_t>(j) * kLine, sizeof(word));
    return word;
  };
  for (int q = 0; q < kQuads; ++q) {
    quads[q] = line(q / 2) >> (q % 2 * 4) & 0x0f0f0f0f;
    if (code_bits == 5) quads[q] |= (line(4) >> q & 0x01010101) << 4;
    if (code_bits == 6) quads[q] |= (line(4 + q / 4) >> (q % 4 * 2) & 0x03030303) << 4;
  }
}

// The rows of a tile that lie side by side in a vector. Those that are missing are zeros.
struct FourRows {
  const std::byte* row[4];

  Words operator()(size_t at) const {
    Words words;
    for (int i = 0; i < 4; ++i) {
      uint32_t word;
      std::memcpy(&word, row[i] + at, sizeof(word));
      words[i] = word;
    }
    return words;
  }
};

void PutHalf(HalfBits half, uint8_t* to) { std::memcpy(to, &half, sizeof(half)); }

HalfBits HalfAt(const uint8_t* from) {
  HalfBits half;
  std::memcpy(&half, from, sizeof(half));
  return half;
}

// What of a GGUF block's scales, whose first 32 columns are block `first` of the tile, lies in the
// head of its group. Here TileScales::kHalves.
template <class Block>
struct HalvesHead {
  static constexpr bool kHasMinimums = requires { Block::m; };

  static void Pack(const TileLayout& layout, int64_t first, const Block& block, int64_t lane,
                   uint8_t* tile) {
    PutHalf(block.d, tile + layout.scales_offset(first) + 2 * lane);
    if constexpr (kHasMinimums) {
      PutHalf(block.m, tile + layout.minimums_offset(first) + 2 * lane);
    }
  }
  static void Unpack(const TileLayout& layout, int64_t first, const uint8_t* tile, int64_t lane,
                     Block& block) {
    block.d = HalfAt(tile + layout.scales_offset(first) + 2 * lane);
    if constexpr (kHasMinimums) block.m = HalfAt(tile + layout.minimums_offset(first) + 2 * lane);
  }
};

// TileScales::kBytes.
template <class Block>
struct BytesHead {
  using Quads = BlockQuads<Block>;
  static constexpr bool kHasMinimums = requires { Quads::MinimumByte; };
  static constexpr HalfBits kSign = 0x8000;
  static constexpr int kMaxScales = 16;

  static void Pack(const TileLayout& layout, int64_t first, const Block& block, int64_t lane,
                   uint8_t* tile) {
    const TileFormat& format = layout.format;
    uint8_t* head = tile + layout.group_offset(first);
    HalfBits dmin = 0;
    if constexpr (kHasMinimums) dmin = block.dmin ^ kSign;
    PutHalf(block.d, head + 2 * lane);
    PutHalf(dmin, head + TileFormat::kHalvesBytes + 2 * lane);
    for (int i = 0; i < NumScales(format); ++i) {
      head[format.scales_begin() + i * kRows + lane] = Quads::ScaleByte(block, i);
      if constexpr (kHasMinimums) {
        head[format.minimums_begin() + i * kRows + lane] = Quads::MinimumByte(block, i);
      }
    }
  }
  static void Unpack(const TileLayout& layout, int64_t first, const uint8_t* tile, int64_t lane,
                     Block& block) {
    const TileFormat& format = layout.format;
    const uint8_t* head = tile + layout.group_offset(first);
    block.d = HalfAt(head + 2 * lane);
    if constexpr (kHasMinimums) {
      block.dmin = HalfAt(head + TileFormat::kHalvesBytes + 2 * lane) ^ kSign;
    }
    uint8_t scales[kMaxScales] = {};
    uint8_t minimums[kMaxScales] = {};
    for (int i = 0; i < NumScales(format); ++i) {
      scales[i] = head[format.scales_begin() + i * kRows + lane];
      if constexpr (kHasMinimums) minimums[i] = head[format.minimums_begin() + i * kRows + lane];
    }
    Quads::PutScales(block, scales, minimums);
  }

 private:
  static int NumScales(const TileFormat& format) {
    return static_cast<int>(format.blocks_of_group()) * format.scales_of_block;
  }
};

template <class Block>
using Head =
    std::conditional_t<BlockQuads<Block>::kColumns == 256, BytesHead<Block>, HalvesHead<Block>>;

template <class Block>
constexpr Block kZeroBlock = {};

template <class Block, int code_bits>
void PackTile(const TileLayout& layout, const std::byte* rows, size_t row_bytes, int64_t lanes,
              uint8_t* tile) {
  using Quads = BlockQuads<Block>;
  constexpr int kBlocks = Quads::kColumns / 32;
  for (int64_t first = 0; first < layout.blocks; first += kBlocks, rows += sizeof(Block)) {
    const auto row = [&](int64_t lane) {
      return lane < lanes ? rows + static_cast<size_t>(lane) * row_bytes
                          : reinterpret_cast<const std::byte*>(&kZeroBlock<Block>);
    };
    for (int64_t lane = 0; lane < kRows; ++lane) {
      Block block;
      std::memcpy(&block, row(lane), sizeof(block));
      Head<Block>::Pack(layout, first, block, lane, tile);
    }
    for (int64_t lane = 0; lane < kRows; lane += 4) {
      const FourRows load = {{row(lane), row(lane + 1), row(lane + 2), row(lane + 3)}};
      for (int b = 0; b < kBlocks; ++b) {
        Words quads[kQuads];
        for (int q = 0; q < kQuads; ++q) quads[q] = Quads::template Read<Words>(load, b, q);
        StorePlanes<code_bits>(quads, tile + layout.codes_offset(first + b) + lane * 4);
      }
    }
  }
  for (int64_t none = layout.blocks; none % layout.format.blocks_of_group() != 0; ++none) {
    for (int64_t lane = 0; lane < kRows; ++lane) Head<Block>::Pack(layout, none, {}, lane, tile);
  }
}

template <class Block, int code_bits>
void UnpackRow(const TileLayout& layout, const uint8_t* tile, int64_t lane, std::byte* to) {
  using Quads = BlockQuads<Block>;
  constexpr int kBlocks = Quads::kColumns / 32;
  for (int64_t first = 0; first < layout.blocks; first += kBlocks, to += sizeof(Block)) {
    Block block = {};
    Head<Block>::Unpack(layout, first, tile, lane, block);
    for (int b = 0; b < kBlocks; ++b) {
      uint32_t quads[kQuads];
      LoadPlanes<code_bits>(tile + layout.codes_offset(first + b) + lane * 4, quads);
      for (int q = 0; q < kQuads; ++q) Quads::Write(block, b, q, quads[q]);
    }
    std::memcpy(to, &block, sizeof(block));
  }
}

// Calls fn<Block, bits of a code> for the type; returns false for types that are not packed here.
template <class F>
bool WithBlock(DType dtype, const F& fn) {
  const auto call = [&]<class Block, DType type>() {
    fn.template operator()<Block, TileFormatOf(type).code_bits>();
    return true;
  };
  switch (dtype) {
    case DType::kQ5_0:
      return call.template operator()<BlockQ5_0, DType::kQ5_0>();
    case DType::kQ5_1:
      return call.template operator()<BlockQ5_1, DType::kQ5_1>();
    case DType::kQ5_K:
      return call.template operator()<BlockQ5_K, DType::kQ5_K>();
    case DType::kQ4_K:
      return call.template operator()<BlockQ4_K, DType::kQ4_K>();
    case DType::kQ6_K:
      return call.template operator()<BlockQ6_K, DType::kQ6_K>();
    default:
      return false;
  }
}

}  // namespace

bool PackPlaneTile(DType dtype, const TileLayout& layout, const std::byte* rows, size_t row_bytes,
                   int64_t lanes, uint8_t* tile) {
  return WithBlock(dtype, [&]<class Block, int code_bits>() {
    PackTile<Block, code_bits>(layout, rows, row_bytes, lanes, tile);
  });
}

bool UnpackPlaneRow(DType dtype, const TileLayout& layout, const uint8_t* tile, int64_t lane,
                    std::byte* blocks) {
  return WithBlock(dtype, [&]<class Block, int code_bits>() {
    UnpackRow<Block, code_bits>(layout, tile, lane, blocks);
  });
}

}  // namespace hearth::kernels
