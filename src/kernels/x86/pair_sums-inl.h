// Products of quads where the processor multiplies bytes in pairs, to 16 bits. The ISA file
// supplies
//   Pairs PairProducts(Bytes u, Bytes s)   the sums of two products, saturated; u unsigned
//   IntVec SumOfPairs(Pairs)               the sums of two
#pragma once

#include "kernels/simd/quads-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// Pairs of products must fit 16 bits, which two of 255 * 127 do not: no offset.
inline constexpr int32_t kOffsetQ8_0 = 0;
HWY_INLINE Bytes PrepareQ8_0(Bytes w) { return w; }

HWY_INLINE IntVec DotQuads(IntVec sums, Bytes u, Bytes s) {
  return hn::Add(sums, SumOfPairs(PairProducts(u, s)));
}

// Sums of 4-bit codes' pairs stay 16 bits wide until a block is done, so that they are widened once
// and not with every quad.
class NibbleSums {
 public:
  HWY_INLINE void Start(IntVec start) {
    start_ = start;
    pairs_ = hn::Zero(PairTag());
  }
  HWY_INLINE void Add(Bytes u, Bytes s) {
    pairs_ = hn::Add(pairs_, PairProducts(u, s));
    // One after the other: GCC adds them up in an order of its own otherwise, for which it first
    // computes more products than there are registers.
    asm("" : "+v"(pairs_.raw));
  }
  HWY_INLINE IntVec Total() const { return hn::Add(start_, SumOfPairs(pairs_)); }

 private:
  static_assert(kQuadsOfBlock * 2 * 15 * 128 <= 32767, "a block's pairs fit 16 bits");
  IntVec start_;
  Pairs pairs_;
};

}  // namespace hearth::kernels::HEARTH_ISA
