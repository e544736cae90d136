// The blocks of GGUF types that weight tiles hold in planes (tensor/weight_tiles.h): their codes a
// quad (four columns) at a time, and their scales a byte at a time. Facts of the public formats.
//
// BlockQuads<Block> has, with `Word` a word of 32 bits or a vector of such, of several rows,
//   kColumns                 of a block
//   Read<Word>(load, b, q)   quad q of the block's b-th 32 columns, a code in each byte; load(at)
//   is
//                            the word that lies `at` bytes into the GGUF block
//   Write(block, b, q, quad) the way back. The block's codes were zeros
//   ScaleByte, MinimumByte   scale or minimum i of the block, for types whose scales are bytes
//   PutScales                the way back, from all of a block's bytes
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

// Q4_K: columns 64j .. 64j + 31 lie in the low nibbles of bytes 32j .. 32j + 31, the next 32
// columns in their high nibbles.
template <>
struct BlockQuads<BlockQ4_K> {
  static constexpr int kColumns = 256;
  static constexpr uint32_t kNibbles = 0x0f0f0f0f;

  static size_t At(int b, int q) { return static_cast<size_t>(32 * (b / 2) + 4 * q); }
  template <class Word, class Load>
  static Word Read(const Load& load, int b, int q) {
    return load(offsetof(BlockQ4_K, qs) + At(b, q)) >> (4 * (b % 2)) & kNibbles;
  }
  static void Write(BlockQ4_K& block, int b, int q, uint32_t quad) {
    OrWord(block.qs + At(b, q), quad << (4 * (b % 2)));
  }
  static uint8_t ScaleByte(const BlockQ4_K& block, int i) {
    return static_cast<uint8_t>(UnpackScaleAndMin(block.scales, i).scale);
  }
  static uint8_t MinimumByte(const BlockQ4_K& block, int i) {
    return static_cast<uint8_t>(UnpackScaleAndMin(block.scales, i).min);
  }
  static void PutScales(BlockQ4_K& block, const uint8_t* scales, const uint8_t* minimums) {
    PackScalesAndMins(scales, minimums, block.scales);
  }
};

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

}  // namespace hearth::kernels
