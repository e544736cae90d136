// Which neurons fire, by their gates.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

static_assert(kLanes <= 16);

// Which gates of the vector at `gates` fire, as bits.
HWY_INLINE uint64_t FiringLanes(const PackFiredArgs& a, const float* gates) {
  const FloatVec v = hn::LoadU(kFloats, gates);
  const auto inside =
      hn::And(hn::Ge(v, hn::Set(kFloats, a.from)), hn::Le(v, hn::Set(kFloats, a.to)));
  const auto fires = hn::Not(hn::Or(hn::Le(v, hn::Set(kFloats, a.below)), inside));
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(kFloats, fires, bytes);
  // No more than was stored, or the load would have to wait until that is in the cache.
  if constexpr (kLanes <= 8) {
    return bytes[0];
  } else {
    uint16_t bits;
    __builtin_memcpy(&bits, bytes, sizeof(bits));
    return bits;
  }
}

// The same of `count` <= 64 gates.
HWY_INLINE uint64_t FiringGates(const PackFiredArgs& a, const float* gates, int64_t count) {
  uint64_t fired = 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) fired |= FiringLanes(a, gates + i) << i;
  for (; i < count; ++i) {
    const float gate = gates[i];
    const bool is_silent = gate <= a.below || (gate >= a.from && gate <= a.to);
    fired |= uint64_t{!is_silent} << i;
  }
  return fired;
}

// Packs gates and neurons [i, i + kLanes) by the lowest bits of `fired`, with instructions that
// AVX-512 has. (What Highway has in place of them elsewhere, GCC makes slower than a loop: it
// copies a table of 1 KiB to the stack for every vector.)
HWY_INLINE void PackLanes(const PackFiredArgs& a, int64_t i, uint64_t fired, int64_t packed) {
  uint8_t bytes[8];
  __builtin_memcpy(bytes, &fired, sizeof(bytes));
  const auto fires = hn::LoadMaskBits(kFloats, bytes);
  const IntTag ints;
  // Lanes after the packed ones may go wherever whole vectors of input lay.
  hn::StoreU(hn::Compress(hn::LoadU(kFloats, a.gates + i), fires), kFloats, a.out_gates + packed);
  hn::StoreU(hn::Compress(hn::LoadU(ints, a.neurons + i), hn::RebindMask(ints, fires)), ints,
             a.out_neurons + packed);
}

inline int64_t PackFired(const PackFiredArgs& args) noexcept {
  const PackFiredArgs a = args;
  int64_t packed = 0;
  for (int64_t first = 0; first < a.count; first += 64) {
    const int64_t count = a.count - first < 64 ? a.count - first : 64;
    uint64_t fired = FiringGates(a, a.gates + first, count);
    if (a.allowed != nullptr) fired &= a.allowed[first / 64];
    if (a.fired != nullptr) a.fired[first / 64] = fired;
    int64_t i = first;
    if constexpr (kLanes == 16) {
      for (; i + kLanes <= first + count; i += kLanes, fired >>= kLanes) {
        const uint64_t lanes = fired & 0xFFFF;
        PackLanes(a, i, lanes, packed);
        packed += __builtin_popcountll(lanes);
      }
    }
    for (; fired != 0; fired &= fired - 1, ++packed) {
      const int64_t at = i + __builtin_ctzll(fired);
      a.out_neurons[packed] = a.neurons[at];
      a.out_gates[packed] = a.gates[at];
    }
  }
  return packed;
}

}  // namespace hearth::kernels::HEARTH_ISA
