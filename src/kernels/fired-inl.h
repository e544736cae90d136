// Which neurons fire, by their gates.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// A bit for each lane of a vector, no more than StoreMaskBits writes: a longer load would have to
// wait until that is in the cache.
template <bool kTwoBytes>
struct BitsOfLanes {
  using Type = uint8_t;
};
template <>
struct BitsOfLanes<true> {
  using Type = uint16_t;
};
using LaneBits = BitsOfLanes<(kLanes > 8)>::Type;
static_assert(kLanes <= 16);

// The vector of gates that begins with neuron i; returns which of them fire, as bits.
HWY_INLINE uint64_t PackFiredLanes(const PackFiredArgs& a, int64_t i, uint64_t allowed,
                                   int64_t packed) {
  const FloatVec gates = hn::LoadU(kFloats, a.gates + i);
  const auto inside =
      hn::And(hn::Ge(gates, hn::Set(kFloats, a.from)), hn::Le(gates, hn::Set(kFloats, a.to)));
  auto fires = hn::Not(hn::Or(hn::Le(gates, hn::Set(kFloats, a.below)), inside));
  LaneBits bits;
  if (a.allowed != nullptr) {
    bits = static_cast<LaneBits>(allowed);
    uint8_t bytes[8] = {};
    __builtin_memcpy(bytes, &bits, sizeof(bits));
    fires = hn::And(fires, hn::LoadMaskBits(kFloats, bytes));
  }
  const IntTag ints;
  const auto neurons = hn::LoadU(ints, a.neurons + i);
  // Lanes behind the packed ones may go wherever whole vectors of input lay.
  hn::StoreU(hn::Compress(gates, fires), kFloats, a.out_gates + packed);
  hn::StoreU(hn::Compress(neurons, hn::RebindMask(ints, fires)), ints, a.out_neurons + packed);
  uint8_t bytes[8];
  hn::StoreMaskBits(kFloats, fires, bytes);
  __builtin_memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

inline int64_t PackFired(const PackFiredArgs& args) noexcept {
  const PackFiredArgs a = args;
  int64_t packed = 0;
  for (int64_t first = 0; first < a.count; first += 64) {
    const uint64_t allowed = a.allowed != nullptr ? a.allowed[first / 64] : ~uint64_t{0};
    const int64_t count = a.count - first < 64 ? a.count - first : 64;
    uint64_t fired = 0;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const uint64_t lanes = PackFiredLanes(a, first + i, allowed >> i, packed);
      packed += __builtin_popcountll(lanes);
      fired |= lanes << i;
    }
    for (; i < count; ++i) {
      const float gate = a.gates[first + i];
      const bool is_silent = gate <= a.below || (gate >= a.from && gate <= a.to);
      const uint64_t fires = is_silent ? 0 : allowed >> i & 1;
      a.out_neurons[packed] = a.neurons[first + i];
      a.out_gates[packed] = gate;
      packed += static_cast<int64_t>(fires);
      fired |= fires << i;
    }
    if (a.fired != nullptr) a.fired[first / 64] = fired;
  }
  return packed;
}

}  // namespace hearth::kernels::HEARTH_ISA
