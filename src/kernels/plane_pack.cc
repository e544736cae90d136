#include "kernels/plane_pack.h"

#include <cstring>

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
  static_assert(code_bits == 4 || code_bits == 6);
  for (int q = 0; q < kQuads; q += 2) {
    store((quads[q] & 0x0f0f0f0f) | (quads[q + 1] & 0x0f0f0f0f) << 4);
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

constexpr HalfBits kSignOfHalf = 0x8000;

// Heads of groups with a byte for every scale (TileScales::kBytes).
template <class Block>
struct ByteHead {
  using Quads = BlockQuads<Block>;
  static constexpr bool kHasMinimums = requires { Quads::MinimumByte; };
  static constexpr int kScales = 16;  // at most

  static void Pack(const TileFormat& format, const Block& block, int64_t lane, uint8_t* head) {
    PutHalf(block.d, head + 2 * lane);
    HalfBits dmin = 0;
    if constexpr (kHasMinimums) dmin = block.dmin ^ kSignOfHalf;
    PutHalf(dmin, head + TileFormat::kHalvesBytes + 2 * lane);
    for (int i = 0; i < NumScales(format); ++i) {
      head[format.scales_begin() + i * kRows + lane] = Quads::ScaleByte(block, i);
      if constexpr (kHasMinimums) {
        head[format.minimums_begin() + i * kRows + lane] = Quads::MinimumByte(block, i);
      }
    }
  }
  static void Unpack(const TileFormat& format, const uint8_t* head, int64_t lane, Block& block) {
    block.d = HalfAt(head + 2 * lane);
    if constexpr (kHasMinimums) {
      block.dmin = HalfAt(head + TileFormat::kHalvesBytes + 2 * lane) ^ kSignOfHalf;
    }
    uint8_t scales[kScales] = {};
    uint8_t minimums[kScales] = {};
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
  static void PutHalf(HalfBits half, uint8_t* to) { std::memcpy(to, &half, sizeof(half)); }
  static HalfBits HalfAt(const uint8_t* from) {
    HalfBits half;
    std::memcpy(&half, from, sizeof(half));
    return half;
  }
};

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
      ByteHead<Block>::Pack(layout.format, block, lane, tile + layout.group_offset(first));
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
}

template <class Block, int code_bits>
void UnpackRow(const TileLayout& layout, const uint8_t* tile, int64_t lane, std::byte* to) {
  using Quads = BlockQuads<Block>;
  constexpr int kBlocks = Quads::kColumns / 32;
  for (int64_t first = 0; first < layout.blocks; first += kBlocks, to += sizeof(Block)) {
    Block block = {};
    ByteHead<Block>::Unpack(layout.format, tile + layout.group_offset(first), lane, block);
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
