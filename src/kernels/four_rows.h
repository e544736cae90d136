// Words of four rows of a tile, side by side in a vector. Compilers turn these vectors into those
// of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hearth::kernels {

typedef uint32_t Words __attribute__((vector_size(16)));

// in[i] has four words of row i; out[j] gets word j of every row.
inline void Transpose(const Words (&in)[4], Words (&out)[4]) {
  const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

struct FourRows {
  const std::byte* row[4];

  // The words at byte `at` of each.
  Words Load(size_t at) const {
    Words words;
    for (int i = 0; i < 4; ++i) {
      uint32_t word;
      std::memcpy(&word, row[i] + at, sizeof(word));
      words[i] = word;
    }
    return words;
  }
  // Four of them, from byte `at` on.
  void LoadFour(size_t at, Words (&words)[4]) const {
    Words rows[4];
    for (int i = 0; i < 4; ++i) std::memcpy(&rows[i], row[i] + at, sizeof(Words));
    Transpose(rows, words);
  }
};

}  // namespace hearth::kernels
