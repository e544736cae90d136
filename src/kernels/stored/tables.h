// The grids of grids.h as bytes, and the masks of signs: what unpacking looks up. Made by the
// compiler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stored/grids.h"

namespace hearth::kernels {

// Entries of N weights, a byte each, the first in the lowest byte of a Word: `add` more than
// levels[level], in arithmetic modulo 256.
template <class Word, size_t kEntries>
struct ByteGrid {
  alignas(64) Word entries[kEntries] = {};

  template <size_t kLevels>
  constexpr ByteGrid(const uint16_t (&grid)[kEntries], const int (&levels)[kLevels], int add = 0) {
    constexpr int kBits = kLevels == 8 ? 3 : 2;
    for (size_t i = 0; i < kEntries; ++i) {
      for (size_t byte = 0; byte < sizeof(Word); ++byte) {
        const int level = grid[i] >> (kBits * byte) & ((1 << kBits) - 1);
        entries[i] |= static_cast<Word>((levels[level] + add) & 255) << (8 * byte);
      }
    }
  }
  constexpr Word operator[](size_t i) const { return entries[i]; }
};

inline constexpr int kIq2Levels[] = {8, 25, 43};
inline constexpr int kIq3XxsLevels[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr int kIq3SLevels[] = {1, 3, 5, 7, 9, 11, 13, 15};
// In eighths, because the grid of IQ1_S and IQ1_M is moved by an eighth either way.
inline constexpr int kIq1Levels[] = {-8, 0, 8};

// Bit i of a byte as all bits of byte i.
struct ByteMasks {
  alignas(64) uint64_t entries[256] = {};

  constexpr ByteMasks() {
    for (size_t bits = 0; bits < 256; ++bits) {
      for (size_t i = 0; i < 8; ++i) {
        if ((bits >> i & 1) != 0) entries[bits] |= uint64_t{255} << (8 * i);
      }
    }
  }
  constexpr uint64_t operator[](size_t bits) const { return entries[bits]; }
};
inline constexpr ByteMasks kByteMasks;

// The same of the seven bits of signs that some types store: the eighth makes their number even.
struct EvenSigns {
  alignas(64) uint64_t entries[128] = {};

  constexpr EvenSigns() {
    for (size_t bits = 0; bits < 128; ++bits) {
      size_t odd = 0;
      for (size_t i = 0; i < 7; ++i) odd ^= bits >> i & 1;
      entries[bits] = kByteMasks[bits | odd << 7];
    }
  }
  constexpr uint64_t operator[](size_t bits) const { return entries[bits]; }
};
inline constexpr EvenSigns kEvenSigns;

}  // namespace hearth::kernels
