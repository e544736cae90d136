#include "kernels/plane_pack.h"

#include <cstring>
#include <type_traits>

#include "kernels/block_quads.h"
#include "kernels/four_rows.h"

namespace hearth::kernels {
namespace {

constexpr int kQuads = 8;  // of 32 columns
constexpr size_t kLine = TileLayout::kLineBytes;
constexpr int64_t kRows = TileLayout::kRows;

// Bits of a code in the first plane.
template <int code_bits>
constexpr int kLowBits = code_bits < 4 ? 2 : 4;

// Bits [begin, begin + count) of all codes, at the bottom of their bytes.
template <int begin, int count, class Word>
Word BitsOf(Word quad) {
  constexpr uint32_t kMask = ((1u << count) - 1) * 0x01010101;
  return quad >> begin & kMask;
}

// The plane of bits [begin, begin + count) of a block's quads, line after line from `lane` on.
template <int begin, int count, class Word>
void StorePlane(const Word (&quads)[kQuads], uint8_t* lane) {
  constexpr int kQuadsOfLine = 8 / count;
  for (int q = 0; q < kQuads; q += kQuadsOfLine, lane += kLine) {
    Word line = BitsOf<begin, count>(quads[q]);
    for (int i = 1; i < kQuadsOfLine; ++i)
      line |= BitsOf<begin, count>(quads[q + i]) << (count * i);
    std::memcpy(lane, &line, sizeof(line));
  }
}

// The way back for one row; quads begin as zeros.
template <int begin, int count>
void LoadPlane(const uint8_t* lane, uint32_t (&quads)[kQuads]) {
  constexpr int kQuadsOfLine = 8 / count;
  for (int q = 0; q < kQuads; ++q) {
    uint32_t line;
    std::memcpy(&line, lane + static_cast<size_t>(q / kQuadsOfLine) * kLine, sizeof(line));
    quads[q] |= BitsOf<0, count>(line >> (count * (q % kQuadsOfLine))) << begin;
  }
}

template <int code_bits, class Word>
void StorePlanes(const Word (&quads)[kQuads], uint8_t* lane) {
  constexpr int kLow = kLowBits<code_bits>;
  StorePlane<0, kLow>(quads, lane);
  if constexpr (code_bits > kLow) {
    StorePlane<kLow, code_bits - kLow>(quads, lane + kLow * kLine);
  }
}

template <int code_bits>
void LoadPlanes(const uint8_t* lane, uint32_t (&quads)[kQuads]) {
  constexpr int kLow = kLowBits<code_bits>;
  LoadPlane<0, kLow>(lane, quads);
  if constexpr (code_bits > kLow) LoadPlane<kLow, code_bits - kLow>(lane + kLow * kLine, quads);
}

// The words of a block of four rows. Each word of a super block is read many times, for a few bits
// each time, so all words are loaded into vectors once.
template <class Block>
class BlockOfFour {
 public:
  explicit BlockOfFour(const FourRows& rows) : rows_(rows) {
    if constexpr (kIsLoaded) {
      for (size_t at = 0; at < kFours; ++at) {
        Words four[4];
        rows.LoadFour(16 * at, four);
        std::memcpy(&words_[4 * at], four, sizeof(four));
      }
      for (size_t word = 4 * kFours; word < kWords; ++word) words_[word] = rows.Load(4 * word);
    }
  }
  Words operator()(size_t at) const {
    if constexpr (kIsLoaded) return words_[at / 4];
    return rows_.Load(at);
  }

 private:
  // Their codes begin on words.
  static constexpr bool kIsLoaded = BlockQuads<Block>::kColumns == 256;
  static constexpr size_t kFours = sizeof(Block) / sizeof(Words), kWords = sizeof(Block) / 4;

  const FourRows& rows_;
  Words words_[kIsLoaded ? kWords : 1];
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

// TileScales::kPowers.
template <class Block>
struct PowersHead {
  static void Pack(const TileLayout& layout, int64_t first, const Block& block, int64_t lane,
                   uint8_t* tile) {
    tile[layout.scales_offset(first) + static_cast<size_t>(lane)] = block.e;
  }
  static void Unpack(const TileLayout& layout, int64_t first, const uint8_t* tile, int64_t lane,
                     Block& block) {
    block.e = tile[layout.scales_offset(first) + static_cast<size_t>(lane)];
  }
};

// TileScales::kSmallFloats.
template <class Block>
struct SmallFloatsHead {
  static constexpr int kScales = sizeof(Block::d);

  static void Pack(const TileLayout& layout, int64_t first, const Block& block, int64_t lane,
                   uint8_t* tile) {
    uint8_t* scales = tile + layout.scales_offset(first);
    for (int i = 0; i < kScales; ++i) scales[i * kRows + lane] = block.d[i];
  }
  static void Unpack(const TileLayout& layout, int64_t first, const uint8_t* tile, int64_t lane,
                     Block& block) {
    const uint8_t* scales = tile + layout.scales_offset(first);
    for (int i = 0; i < kScales; ++i) block.d[i] = scales[i * kRows + lane];
  }
};

// Super blocks.
template <class Block>
struct BytesHead {
  using Quads = BlockQuads<Block>;
  static constexpr bool kHasMinimums = requires { Quads::MinimumByte; };
  static constexpr bool kHasMinimumFactor = requires { Block::dmin; };
  static constexpr bool kIsPacked = std::is_same_v<Block, BlockQ3_K>;  // TileScales::kSixBits
  static constexpr HalfBits kSign = 0x8000;
  static constexpr int kMaxScales = 16;

  static void Pack(const TileLayout& layout, int64_t first, const Block& block, int64_t lane,
                   uint8_t* tile) {
    const TileFormat& format = layout.format;
    uint8_t* head = tile + layout.group_offset(first);
    HalfBits dmin = 0;
    if constexpr (kHasMinimumFactor) dmin = block.dmin ^ kSign;
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
    if constexpr (kHasMinimumFactor) {
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
    return kIsPacked ? 12 : format.scales_of_block == 1 ? kMaxScales / 2 : kMaxScales;
  }
};

template <class Block>
constexpr bool kHasPower = requires {
  Block::e;
};
template <class Block>
using SmallHead = std::conditional_t<kHasPower<Block>, PowersHead<Block>, HalvesHead<Block>>;
template <class Block>
using WideHead =
    std::conditional_t<BlockQuads<Block>::kColumns == 64, SmallFloatsHead<Block>, BytesHead<Block>>;
template <class Block>
using Head =
    std::conditional_t<BlockQuads<Block>::kColumns == 32, SmallHead<Block>, WideHead<Block>>;

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
      // Those that are missing are zeros.
      const FourRows four = {{row(lane), row(lane + 1), row(lane + 2), row(lane + 3)}};
      const BlockOfFour<Block> load(four);
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
      uint32_t quads[kQuads] = {};
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
    case DType::kIQ4_NL:
      return call.template operator()<BlockIQ4_NL, DType::kIQ4_NL>();
    case DType::kMXFP4:
      return call.template operator()<BlockMXFP4, DType::kMXFP4>();
    case DType::kNVFP4:
      return call.template operator()<BlockNVFP4, DType::kNVFP4>();
    case DType::kIQ4_XS:
      return call.template operator()<BlockIQ4_XS, DType::kIQ4_XS>();
    case DType::kQ2_K:
      return call.template operator()<BlockQ2_K, DType::kQ2_K>();
    case DType::kQ3_K:
      return call.template operator()<BlockQ3_K, DType::kQ3_K>();
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
