// Random weights, drawn directly in the bytes of a GGUF tensor: gigabytes per second, because
// nothing is computed in float and then quantized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace hearth {

// What the weights of one tensor are drawn from. A mean other than 0 is for float types only.
struct WeightDistribution {
  double mean = 0;
  double std = 1;
};

// True for what WeightGenerator can make: F32, F16, BF16, Q4_0, Q4_1, Q8_0.
bool CanSynthesize(DType dtype);

// Distributions, all symmetrical about the mean:
//
//   F32, F16, BF16  each weight is one of the 4096 equally probable quantiles of the normal
//                   distribution (at most 3.7 standard deviations out)
//   Q4_0            codes q - 8 are the sum of two uniform numbers, a triangle over -7..7, but one
//                   code of each block is -8, as a quantizer makes the weight of largest magnitude
//   Q4_1            codes are the sum of three uniform numbers over 0..15; one code of each block
//                   is 0 and one 15, as a quantizer makes its minimum and maximum; m = -7.5 d
//   Q8_0            codes are a triangle over -127..127, one code of each block is -127 or 127
//
// Block scales are uniform within 30% of their mean, as much as the largest of 32 normal weights
// varies, and either sign in Q4_0. All weights together have a kurtosis of 2.8 to 2.9 (a
// normal distribution: 3) and end at 2.6 to 2.9 standard deviations.
//
// Immutable and thread-safe.
class WeightGenerator {
 public:
  explicit WeightGenerator(uint64_t seed);

  // Fills `out`, aligned for floats, with whole blocks of `dtype`, one that CanSynthesize. The
  // bytes depend on the
  // seed, the arguments and nothing else; different (tensor, chunk) pairs are independent streams.
  void Fill(DType dtype, WeightDistribution distribution, uint64_t tensor, uint64_t chunk,
            std::span<std::byte> out) const noexcept;

 private:
  static constexpr size_t kNumQuantiles = 4096;

  template <typename Stored, typename FromFloat>
  void FillFloats(WeightDistribution distribution, uint64_t stream, std::span<std::byte> out,
                  FromFloat from_float) const noexcept;

  uint64_t seed_;
  std::array<float, kNumQuantiles> quantiles_;  // of the normal distribution; unit variance
};

}  // namespace hearth
