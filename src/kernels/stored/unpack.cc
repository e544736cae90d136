// A function per type. Eight codes are a word, and arithmetic on it is arithmetic on all of them:
// what would carry from a byte into the next one is cancelled by what is borrowed, because every
// final code lies within its byte.
#include "kernels/stored/unpack.h"

#include <cstring>
#include <type_traits>

#include "kernels/stored/tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

constexpr int kOffset = 64;
constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kOffsets = kOnes * kOffset;

constexpr ByteGrid<uint64_t, 256> kIq2Xxs(kIq2XxsGrid, kIq2Levels);
constexpr ByteGrid<uint64_t, 512> kIq2Xs(kIq2XsGrid, kIq2Levels);
constexpr ByteGrid<uint64_t, 1024> kIq2S(kIq2SGrid, kIq2Levels);
constexpr ByteGrid<uint64_t, 2048> kIq1(kIq1Grid, kIq1Levels, kOffset);
constexpr ByteGrid<uint32_t, 256> kIq3Xxs(kIq3XxsGrid, kIq3XxsLevels);
constexpr ByteGrid<uint32_t, 512> kIq3S(kIq3SGrid, kIq3SLevels);

// The offset plus or minus eight magnitudes.
uint64_t WithSigns(uint64_t magnitudes, uint64_t negative) {
  return kOffsets + magnitudes - ((magnitudes & negative) << 1);
}
// Two entries of four weights.
uint64_t Both(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

template <class Word>
Word LoadWord(const void* p) {
  Word word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

int Nibble(const uint8_t* bytes, int i) { return bytes[i / 2] >> (4 * (i % 2)) & 15; }

// `out` has
//   Codes(i, word)       codes 8i .. 8i + 7 of the block
//   Scale(i, scale)      its i-th scale

template <class Out>
void Unpack(const BlockIQ2_XXS& block, const Out& out) {
  const float d = HalfToFloat(block.d) * 0.125f;
  for (int b = 0; b < 8; ++b) {
    const auto indices = LoadWord<uint32_t>(block.qs + 4 * b);
    const auto rest = LoadWord<uint32_t>(block.qs + 4 * b + 2);
    out.Scale(b, d * static_cast<float>(2 * (rest >> 28) + 1));
    for (int k = 0; k < 4; ++k) {
      const uint64_t grid = kIq2Xxs[indices >> (8 * k) & 255];
      out.Codes(4 * b + k, WithSigns(grid, kEvenSigns[rest >> (7 * k) & 127]));
    }
  }
}

template <class Out>
void Unpack(const BlockIQ2_XS& block, const Out& out) {
  const float d = HalfToFloat(block.d) * 0.125f;
  for (int i = 0; i < 16; ++i) {
    out.Scale(i, d * static_cast<float>(2 * Nibble(block.scales, i) + 1));
  }
  for (int i = 0; i < 32; ++i) {
    const uint16_t q = block.qs[i];
    out.Codes(i, WithSigns(kIq2Xs[q & 511], kEvenSigns[q >> 9]));
  }
}

template <class Out>
void Unpack(const BlockIQ2_S& block, const Out& out) {
  const float d = HalfToFloat(block.d) * 0.125f;
  for (int i = 0; i < 16; ++i) {
    out.Scale(i, d * static_cast<float>(2 * Nibble(block.scales, i) + 1));
  }
  for (int b = 0; b < 8; ++b) {
    for (int k = 0; k < 4; ++k) {
      const int i = 4 * b + k;
      const int index = block.qs[i] | (block.qh[b] >> (2 * k) & 3) << 8;
      out.Codes(i, WithSigns(kIq2S[static_cast<size_t>(index)], kByteMasks[block.signs[i]]));
    }
  }
}

template <class Out>
void Unpack(const BlockIQ3_XXS& block, const Out& out) {
  const float d = HalfToFloat(block.d) * 0.25f;
  for (int b = 0; b < 8; ++b) {
    const auto rest = LoadWord<uint32_t>(block.scales_and_signs + 4 * b);
    out.Scale(b, d * static_cast<float>(2 * (rest >> 28) + 1));
    for (int k = 0; k < 4; ++k) {
      const uint8_t* q = block.qs + 8 * b + 2 * k;
      out.Codes(4 * b + k,
                WithSigns(Both(kIq3Xxs[q[0]], kIq3Xxs[q[1]]), kEvenSigns[rest >> (7 * k) & 127]));
    }
  }
}

template <class Out>
void Unpack(const BlockIQ3_S& block, const Out& out) {
  const float d = HalfToFloat(block.d);
  for (int b = 0; b < 8; ++b) {
    out.Scale(b, d * static_cast<float>(2 * Nibble(block.scales, b) + 1));
    const unsigned ninth = block.qh[b];
    for (int k = 0; k < 4; ++k) {
      const uint8_t* q = block.qs + 8 * b + 2 * k;
      const uint32_t low = kIq3S[q[0] | (ninth >> (2 * k) & 1) << 8];
      const uint32_t high = kIq3S[q[1] | (ninth >> (2 * k + 1) & 1) << 8];
      out.Codes(4 * b + k, WithSigns(Both(low, high), kByteMasks[block.signs[4 * b + k]]));
    }
  }
}

// An entry of IQ1's grid, in eighths, moved down by an eighth where `is_down`, else up.
uint64_t Moved(size_t index, bool is_down) {
  return kIq1[index] + kOnes - (is_down ? 2 * kOnes : 0);
}

template <class Out>
void Unpack(const BlockIQ1_S& block, const Out& out) {
  const float d = HalfToFloat(block.d) * 0.125f;
  for (int b = 0; b < 8; ++b) {
    const unsigned high = block.qh[b];
    out.Scale(b, d * static_cast<float>(2 * (high >> 12 & 7) + 1));
    for (int k = 0; k < 4; ++k) {
      const size_t index = block.qs[4 * b + k] | (high >> (3 * k) & 7) << 8;
      out.Codes(4 * b + k, Moved(index, high >> 15 != 0));
    }
  }
}

template <class Out>
void Unpack(const BlockIQ1_M& block, const Out& out) {
  HalfBits bits = 0;
  for (int i = 0; i < 4; ++i) {
    bits = static_cast<HalfBits>(bits | (block.scales[i] >> 12) << (4 * i));
  }
  const float d = HalfToFloat(bits) * 0.125f;
  for (int b = 0; b < 8; ++b) {
    const unsigned scales = block.scales[b / 2] >> (6 * (b % 2));
    out.Scale(2 * b, d * static_cast<float>(2 * (scales & 7) + 1));
    out.Scale(2 * b + 1, d * static_cast<float>(2 * (scales >> 3 & 7) + 1));
    const unsigned high = block.qh[2 * b] | static_cast<unsigned>(block.qh[2 * b + 1]) << 8;
    for (int k = 0; k < 4; ++k) {
      const size_t index = block.qs[4 * b + k] | (high >> (4 * k) & 7) << 8;
      out.Codes(4 * b + k, Moved(index, (high >> (4 * k) & 8) != 0));
    }
  }
}

// Sends what does not come in words of eight: all codes of a block, and one scale for all.
template <class Out>
void Send(const uint8_t (&codes)[256], float scale, const Out& out) {
  for (int i = 0; i < 32; ++i) out.Codes(i, LoadWord<uint64_t>(codes + 8 * i));
  for (int b = 0; b < 8; ++b) out.Scale(b, scale);
}

// Codes of one digit of `count` bytes. A byte is the digits as a fraction of 256: multiplied by a
// power of three it begins with the next digit.
void UnpackDigit(const uint8_t* bytes, int count, unsigned power, uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    const unsigned fraction = bytes[i] * power & 255;
    codes[i] = static_cast<uint8_t>((fraction * 3 >> 8) + (kOffset - 1));
  }
}

template <class Out>
void Unpack(const BlockTQ1_0& block, const Out& out) {
  constexpr unsigned kPowers[] = {1, 3, 9, 27, 81};
  uint8_t codes[256];
  for (int digit = 0; digit < 5; ++digit) {
    UnpackDigit(block.qs, 32, kPowers[digit], codes + 32 * digit);
    UnpackDigit(block.qs + 32, 16, kPowers[digit], codes + 160 + 16 * digit);
    if (digit < 4) UnpackDigit(block.qh, 4, kPowers[digit], codes + 240 + 4 * digit);
  }
  Send(codes, HalfToFloat(block.d), out);
}

template <class Out>
void Unpack(const BlockTQ2_0& block, const Out& out) {
  const float d = HalfToFloat(block.d);
  for (int b = 0; b < 8; ++b) {
    out.Scale(b, d);
    for (int k = 0; k < 4; ++k) {
      const auto word = LoadWord<uint64_t>(block.qs + 32 * (b / 4) + 8 * k);
      out.Codes(4 * b + k, (word >> (2 * (b % 4)) & 3 * kOnes) + (kOffset - 1) * kOnes);
    }
  }
}

template <class Out>
void Unpack(const BlockQ1_0& block, const Out& out) {
  const float d = HalfToFloat(block.d);
  for (int b = 0; b < 4; ++b) out.Scale(b, d);
  for (int i = 0; i < 16; ++i) {
    out.Codes(i, (kByteMasks[block.qs[i]] & 2 * kOnes) + (kOffset - 1) * kOnes);
  }
}

struct InOrder {
  UnpackedBlock& out;

  void Codes(int i, uint64_t word) const { std::memcpy(out.codes + 8 * i, &word, sizeof(word)); }
  void Scale(int i, float scale) const { out.scales[i] = scale; }
};

// Four lanes of 32 bits; compilers turn these into what the machine has.
typedef uint32_t Words __attribute__((vector_size(16)));

// Four rows on their way into their lanes of a group. Written row by row, then four columns of all
// of them at once: a store for each row and quad takes twice as long.
struct FourRows {
  static constexpr int kRows = 4;
  alignas(64) uint8_t codes[kRows][UnpackedBlock::kMaxColumns];

  // `columns` of them, to the first of their lanes.
  void StoreLanes(int columns, uint8_t* lane) const {
    constexpr int kLine = 64;
    for (int i = 0; i < columns; i += 16, lane += 4 * kLine) {
      Words in[kRows];
      for (int r = 0; r < kRows; ++r) in[r] = LoadWord<Words>(codes[r] + i);
      const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
      const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
      const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
      const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
      const Words out[] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                           __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                           __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                           __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (int q = 0; q < 4; ++q) std::memcpy(lane + q * kLine, &out[q], sizeof(Words));
    }
  }
};

// One of them, and its lane of the scales.
struct OfFourRows {
  uint8_t* codes;
  float* scales;

  void Codes(int i, uint64_t word) const { std::memcpy(codes + 8 * i, &word, sizeof(word)); }
  void Scale(int i, float scale) const { scales[i * UnpackedGroup::kRows] = scale; }
};

template <class Block>
Block BlockAt(const std::byte* p) {
  return LoadWord<Block>(p);
}

// Calls fn with an (empty) block of the type.
template <class F>
void WithStored(DType dtype, const F& fn) {
  switch (dtype) {
    case DType::kIQ3_XXS:
      return fn(BlockIQ3_XXS{});
    case DType::kIQ3_S:
      return fn(BlockIQ3_S{});
    case DType::kIQ2_XXS:
      return fn(BlockIQ2_XXS{});
    case DType::kIQ2_XS:
      return fn(BlockIQ2_XS{});
    case DType::kIQ2_S:
      return fn(BlockIQ2_S{});
    case DType::kIQ1_S:
      return fn(BlockIQ1_S{});
    case DType::kIQ1_M:
      return fn(BlockIQ1_M{});
    case DType::kTQ1_0:
      return fn(BlockTQ1_0{});
    case DType::kTQ2_0:
      return fn(BlockTQ2_0{});
    default:
      return fn(BlockQ1_0{});
  }
}

}  // namespace

void UnpackBlock(DType dtype, const std::byte* block, UnpackedBlock& out) noexcept {
  WithStored(dtype, [&]<class Block>(Block) { Unpack(BlockAt<Block>(block), InOrder{out}); });
}

void UnpackGroup(DType dtype, const std::byte* group, UnpackedGroup& out) noexcept {
  WithStored(dtype, [&]<class Block>(Block) {
    constexpr int kColumns = std::is_same_v<Block, BlockQ1_0> ? 128 : 256;
    FourRows rows;
    for (int lane = 0; lane < UnpackedGroup::kRows; ++lane, group += sizeof(Block)) {
      const int row = lane % FourRows::kRows;
      Unpack(BlockAt<Block>(group), OfFourRows{rows.codes[row], out.scales + lane});
      if (row == FourRows::kRows - 1) rows.StoreLanes(kColumns, out.quads + 4 * (lane - row));
    }
  });
}

}  // namespace hearth::kernels
