// Weights of types that have no encoder here: blocks of random codes whose scales make them as
// large as those of a model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dequantize.h"
#include "kernels/test_util.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace hearth::kernels::testing {

// Gives a block its scale, or the factor of its scales; NVFP4 and MXFP4 get the nearest power of
// two. Minimums become zeros.
inline void PutScale(DType dtype, std::byte* block, float scale) {
  const int power = static_cast<int>(std::lround(std::log2(scale)));
  const HalvesOfBlock halves = HalvesOf(dtype);
  const uint16_t half = FloatToHalf(scale);
  if (dtype == DType::kMXFP4) block[0] = std::byte(std::clamp(127 + power, 1, 254));
  if (dtype == DType::kNVFP4) {
    std::fill_n(block, 4, std::byte(std::clamp(7 + power, 1, 14) << 3));
  }
  if (dtype == DType::kIQ1_M) PutScaleOfIq1M(block, half);
  if (halves.scale >= 0) std::memcpy(block + halves.scale, &half, sizeof(half));
  if (halves.minimum >= 0) std::memset(block + halves.minimum, 0, sizeof(half));
}

// `n` weights, whole blocks of a type of kTileFormats, with this root mean square (within a factor
// of two for types whose scales are powers of two).
inline std::vector<std::byte> RandomWeights(DType dtype, size_t n, std::mt19937& random,
                                            float rms) {
  const size_t block = InfoOf(dtype).block_bytes;
  std::vector<std::byte> bytes(RowBytes(dtype, n));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const auto put_scales = [&](float scale) {
    for (size_t at = 0; at < bytes.size(); at += block) PutScale(dtype, &bytes[at], scale);
  };
  put_scales(1);
  std::vector<float> values(n);
  Dequantize(dtype, bytes.data(), static_cast<int64_t>(n), values.data());
  double sum = 0;
  for (const float v : values) sum += double{v} * double{v};
  put_scales(rms / static_cast<float>(std::sqrt(sum / static_cast<double>(n))));
  return bytes;
}

}  // namespace hearth::kernels::testing
