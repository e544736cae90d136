// The codes of a GGUF block as a lane of lines: the order that weight tiles and bundle rows share
// (tensor/weight_tiles.h, tensor/row_groups.h).
//
// 4-bit: line j holds codes 8j..8j+3 in the low and 8j+4..8j+7 in the high nibbles of its four
// bytes. 8-bit: line j holds codes 4j..4j+3. Exact both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/blocks.h"

namespace hearth::kernels {

// GGUF has codes 0..15 of a block in low nibbles and 16..31 in high ones, so half of each line's
// codes comes from two words, and half of those of the line two further on.
template <class Block>  // BlockQ4_0, BlockQ4_1
struct LaneCodes {
  // Writes (reads) four lines, line_bytes apart, from `lane` on.
  static void Pack(const Block& block, uint8_t* lane, size_t line_bytes) {
    for (size_t line = 0; line < 2; ++line) {
      const uint32_t first = LoadWord(block.qs + 8 * line);
      const uint32_t second = LoadWord(block.qs + 8 * line + 4);
      StoreWord(lane + line * line_bytes, (first & kLow) | (second & kLow) << 4);
      StoreWord(lane + (line + 2) * line_bytes, (first >> 4 & kLow) | (second & ~kLow));
    }
  }
  static void Unpack(const uint8_t* lane, size_t line_bytes, Block& block) {
    for (size_t line = 0; line < 2; ++line) {
      const uint32_t low = LoadWord(lane + line * line_bytes);
      const uint32_t high = LoadWord(lane + (line + 2) * line_bytes);
      StoreWord(block.qs + 8 * line, (low & kLow) | (high & kLow) << 4);
      StoreWord(block.qs + 8 * line + 4, (low >> 4 & kLow) | (high & ~kLow));
    }
  }

 private:
  static constexpr uint32_t kLow = 0x0f0f0f0f;
  static uint32_t LoadWord(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, sizeof(word));
    return word;
  }
  static void StoreWord(uint8_t* p, uint32_t word) { std::memcpy(p, &word, sizeof(word)); }
};

template <>
struct LaneCodes<BlockQ8_0> {
  static void Pack(const BlockQ8_0& block, uint8_t* lane, size_t line_bytes) {
    for (size_t line = 0; line < 8; ++line)
      std::memcpy(lane + line * line_bytes, block.qs + line * 4, 4);
  }
  static void Unpack(const uint8_t* lane, size_t line_bytes, BlockQ8_0& block) {
    for (size_t line = 0; line < 8; ++line)
      std::memcpy(block.qs + line * 4, lane + line * line_bytes, 4);
  }
};

}  // namespace hearth::kernels
