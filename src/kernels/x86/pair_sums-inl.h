// Products of 4-bit codes where bytes are multiplied in pairs: sums of pairs stay 16 bits wide
// until a block is done, so that they are widened once and not with every quad.
//
// The ISA file supplies IntVec SumOfPairs(V) for a vector V of 16-bit lanes, and V PairProducts(u,
// s).
#pragma once

#include "kernels/quads-inl.h"

namespace hearth::kernels::HEARTH_ISA {

class NibbleSums {
 public:
  HWY_INLINE void Start(IntVec start) {
    start_ = start;
    pairs_ = hn::Zero(PairTag());
  }
  // |products of a pair| <= 2 * 15 * 128, eight times: 30720 fits 16 bits.
  HWY_INLINE void Add(Bytes u, Bytes s) {
    pairs_ = hn::Add(pairs_, PairProducts(u, s));
    // One after the other: GCC adds them up in an order of its own otherwise, for which it first
    // computes more products than there are registers.
    asm("" : "+v"(pairs_.raw));
  }
  HWY_INLINE IntVec Total() const { return hn::Add(start_, SumOfPairs(pairs_)); }

 private:
  static_assert(kQuadsOfBlock * 2 * 15 * 128 <= 32767);
  IntVec start_;
  hn::Vec<PairTag> pairs_;
};

}  // namespace hearth::kernels::HEARTH_ISA
