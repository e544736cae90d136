// Random numbers for files that must come out alike on every machine.
#pragma once

#include <cstdint>

namespace hearth {

// SplitMix64 (Steele, Lea and Flood 2014): the n-th number is a mix of start + n * constant, so
// that a stream may begin anywhere and calls do not wait for each other.
inline uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class RandomWords {
 public:
  explicit RandomWords(uint64_t stream) : state_(stream) {}

  uint64_t Next() { return MixBits(state_ += 0x9e3779b97f4a7c15u); }

  // Uniform over [0, 1), a multiple of 2^-53.
  double NextUnit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // Uniform over [0, n) for 0 < n <= 2^31, but for a bias of at most n / 2^32.
  uint64_t NextBelow(uint64_t n) { return (Next() >> 32) * n >> 32; }

 private:
  uint64_t state_;
};

// The stream of (a, b) under a seed: a number that no other has but by an accident of 1 in 2^64.
inline uint64_t StreamOf(uint64_t seed, uint64_t a, uint64_t b) {
  return MixBits(MixBits(MixBits(seed + 1) + a) + b);
}

}  // namespace hearth
