// The blocks of GGUF types that weight tiles hold in planes (tensor/weight_tiles.h): their codes a
// quad (four columns) at a time, and their scales a byte at a time. Facts of the public formats.
//
// BlockQuads<Block> has
//   kColumns                 columns of a block
//   Read<Word>(load, b, q)   quad q of the block's b-th 32 columns, a code in each byte
//   Write(block, b, q, quad) the way back, into a block whose codes are zeros
//   ScaleByte, MinimumByte   scale or minimum i of the block, for types whose scales are bytes
//   PutScales                the way back, from all of a block's bytes
// `Word` is a word of 32 bits, or a vector with one of each of several rows. load(at) is the word
// that lies `at` bytes into the GGUF block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/weight_tables.h"
#include "tensor/blocks.h"

namespace hearth::kernels {

// Sets bits of the word at p.
inline void OrWord(uint8_t* p, uint32_t bits) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  word |= bits;
  std::memcpy(p, &word, sizeof(word));
}

template <class Block>
struct BlockQuads;

// Columns 0 .. 15 lie in low nibbles, 16 .. 31 in high ones. Q5_0, Q5_1: and a fifth bit of each
// of them in order.
template <class Block>
struct NibbleQuads {
  static constexpr int kColumns = 32;
  static constexpr bool kHasFifthBits = requires { Block::qh; };

  static size_t At(int q) { return static_cast<size_t>(4 * (q % 4)); }
  template <class Word, class Load>
  static Word Read(const Load& load, int, int q) {
    Word quad = load(offsetof(Block, qs) + At(q)) >> (4 * (q / 4)) & 0x0f0f0f0f;
    if constexpr (kHasFifthBits) {
      // Bit i of the four that belong to the quad goes to byte i: copies of them, 7 bits apart.
      const Word bits = load(offsetof(Block, qh)) >> (4 * q) & 15;
      quad |= (bits * 0x00204081 & 0x01010101) << 4;
    }
    return quad;
  }
  static void Write(Block& block, int, int q, uint32_t quad) {
    OrWord(block.qs + At(q), (quad & 0x0f0f0f0f) << (4 * (q / 4)));
    if constexpr (kHasFifthBits) {
      // The bits come together in the uppermost four.
      OrWord(block.qh, ((quad >> 4 & 0x01010101) * 0x10204080) >> 28 << (4 * q));
    }
  }
};
template <>
struct BlockQuads<BlockIQ4_NL> : NibbleQuads<BlockIQ4_NL> {};
template <>
struct BlockQuads<BlockMXFP4> : NibbleQuads<BlockMXFP4> {};
template <>
struct BlockQuads<BlockQ5_0> : NibbleQuads<BlockQ5_0> {};
template <>
struct BlockQuads<BlockQ5_1> : NibbleQuads<BlockQ5_1> {};

// NVFP4: columns 16s .. 16s + 7 lie in the low nibbles of bytes 8s .. 8s + 7, the next eight in
// their high nibbles.
template <>
struct BlockQuads<BlockNVFP4> {
  static constexpr int kColumns = 64;

  static size_t At(int b, int q) { return static_cast<size_t>(16 * b + 8 * (q / 4) + 4 * (q % 2)); }
  static int Shift(int q) { return 4 * (q % 4 / 2); }
  template <class Word, class Load>
  static Word Read(const Load& load, int b, int q) {
    return load(offsetof(BlockNVFP4, qs) + At(b, q)) >> Shift(q) & 0x0f0f0f0f;
  }
  static void Write(BlockNVFP4& block, int b, int q, uint32_t quad) {
    OrWord(block.qs + At(b, q), (quad & 0x0f0f0f0f) << Shift(q));
  }
};

// IQ4_XS: every 32 columns as those of IQ4_NL. Scales become signed bytes.
template <>
struct BlockQuads<BlockIQ4_XS> {
  static constexpr int kColumns = 256;

  static size_t At(int b, int q) { return static_cast<size_t>(16 * b + 4 * (q % 4)); }
  template <class Word, class Load>
  static Word Read(const Load& load, int b, int q) {
    return load(offsetof(BlockIQ4_XS, qs) + At(b, q)) >> (4 * (q / 4)) & 0x0f0f0f0f;
  }
  static void Write(BlockIQ4_XS& block, int b, int q, uint32_t quad) {
    OrWord(block.qs + At(b, q), (quad & 0x0f0f0f0f) << (4 * (q / 4)));
  }
  static uint8_t ScaleByte(const BlockIQ4_XS& block, int i) {
    return static_cast<uint8_t>(Iq4XsScale(block.scales_l, block.scales_h, i));
  }
  static void PutScales(BlockIQ4_XS& block, const uint8_t* scales, const uint8_t*) {
    for (int i = 0; i < 8; ++i) {
      const int scale = static_cast<uint8_t>(scales[i] + 32);
      uint8_t& low = block.scales_l[i / 2];
      low = static_cast<uint8_t>(low | (scale & 15) << (4 * (i % 2)));
      block.scales_h = static_cast<uint16_t>(block.scales_h | (scale >> 4 & 3) << (2 * i));
    }
  }
};

// Q4_K, Q5_K: columns 64j .. 64j + 31 lie in the low nibbles of bytes 32j .. 32j + 31, the next 32
// columns in their high nibbles. Fifth bits: bit b of byte i belongs to column 32b + i.
template <class Block>
struct SuperBlockQuads {
  static constexpr int kColumns = 256;
  static constexpr bool kHasFifthBits = requires { Block::qh; };

  static size_t At(int b, int q) { return static_cast<size_t>(32 * (b / 2) + 4 * q); }
  template <class Word, class Load>
  static Word Read(const Load& load, int b, int q) {
    Word quad = load(offsetof(Block, qs) + At(b, q)) >> (4 * (b % 2)) & 0x0f0f0f0f;
    if constexpr (kHasFifthBits) {
      quad |= (load(offsetof(Block, qh) + static_cast<size_t>(4 * q)) >> b & 0x01010101) << 4;
    }
    return quad;
  }
  static void Write(Block& block, int b, int q, uint32_t quad) {
    OrWord(block.qs + At(b, q), (quad & 0x0f0f0f0f) << (4 * (b % 2)));
    if constexpr (kHasFifthBits) OrWord(block.qh + 4 * q, (quad >> 4 & 0x01010101) << b);
  }
  static uint8_t ScaleByte(const Block& block, int i) {
    return static_cast<uint8_t>(UnpackScaleAndMin(block.scales, i).scale);
  }
  static uint8_t MinimumByte(const Block& block, int i) {
    return static_cast<uint8_t>(UnpackScaleAndMin(block.scales, i).min);
  }
  static void PutScales(Block& block, const uint8_t* scales, const uint8_t* minimums) {
    PackScalesAndMins(scales, minimums, block.scales);
  }
};
template <>
struct BlockQuads<BlockQ4_K> : SuperBlockQuads<BlockQ4_K> {};
template <>
struct BlockQuads<BlockQ5_K> : SuperBlockQuads<BlockQ5_K> {};

// Q6_K: in each half of 128 columns, 32 columns share 32 bytes of upper bits with three times as
// many others, and lower bits with one.
template <>
struct BlockQuads<BlockQ6_K> {
  static constexpr int kColumns = 256;

  static size_t LowAt(int b, int q) {
    return static_cast<size_t>(64 * (b / 4) + 32 * (b % 2) + 4 * q);
  }
  static size_t HighAt(int b, int q) { return static_cast<size_t>(32 * (b / 4) + 4 * q); }
  static int LowShift(int b) { return 4 * (b % 4 / 2); }
  static int HighShift(int b) { return 2 * (b % 4); }

  template <class Word, class Load>
  static Word Read(const Load& load, int b, int q) {
    const Word low = load(offsetof(BlockQ6_K, ql) + LowAt(b, q)) >> LowShift(b);
    const Word high = load(offsetof(BlockQ6_K, qh) + HighAt(b, q)) >> HighShift(b);
    return (low & 0x0f0f0f0f) | (high & 0x03030303) << 4;
  }
  static void Write(BlockQ6_K& block, int b, int q, uint32_t quad) {
    OrWord(block.ql + LowAt(b, q), (quad & 0x0f0f0f0f) << LowShift(b));
    OrWord(block.qh + HighAt(b, q), (quad >> 4 & 0x03030303) << HighShift(b));
  }
  static uint8_t ScaleByte(const BlockQ6_K& block, int i) {
    return static_cast<uint8_t>(block.scales[i]);
  }
  static void PutScales(BlockQ6_K& block, const uint8_t* scales, const uint8_t*) {
    std::memcpy(block.scales, scales, sizeof(block.scales));
  }
};

// Q2_K, Q3_K: in each half of 128 columns, four times 32 columns share 32 bytes, two bits each.
// Third bits: bit b of byte i belongs to column 32b + i. The bytes of scales are the tile's.
template <class Block>
struct TwoBitQuads {
  static constexpr int kColumns = 256;
  static constexpr bool kHasThirdBits = requires { Block::hmask; };

  static size_t At(int b, int q) { return static_cast<size_t>(32 * (b / 4) + 4 * q); }
  template <class Word, class Load>
  static Word Read(const Load& load, int b, int q) {
    Word quad = load(offsetof(Block, qs) + At(b, q)) >> (2 * (b % 4)) & 0x03030303;
    if constexpr (kHasThirdBits) {
      quad |= (load(offsetof(Block, hmask) + static_cast<size_t>(4 * q)) >> b & 0x01010101) << 2;
    }
    return quad;
  }
  static void Write(Block& block, int b, int q, uint32_t quad) {
    OrWord(block.qs + At(b, q), (quad & 0x03030303) << (2 * (b % 4)));
    if constexpr (kHasThirdBits) OrWord(block.hmask + 4 * q, (quad >> 2 & 0x01010101) << b);
  }
  static uint8_t ScaleByte(const Block& block, int i) { return block.scales[i]; }
  static void PutScales(Block& block, const uint8_t* scales, const uint8_t*) {
    std::memcpy(block.scales, scales, sizeof(block.scales));
  }
};
template <>
struct BlockQuads<BlockQ2_K> : TwoBitQuads<BlockQ2_K> {};
template <>
struct BlockQuads<BlockQ3_K> : TwoBitQuads<BlockQ3_K> {};

}  // namespace hearth::kernels
