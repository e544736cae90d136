// Plain encoders of the types that Hearth only reads, for tests of their conversion: scales from
// extremes, codes by rounding. Worse than what real quantizers search for, but their blocks are as
// real ones are.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/weight_tables.h"
#include "tensor/blocks.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace hearth::kernels::test_encoders {

inline int Code(float value, float scale, int zero, int max) {
  const float code = scale == 0 ? 0.0f : std::nearbyint(value / scale);
  return std::clamp(static_cast<int>(code) + zero, 0, max);
}

inline float AbsMax(const float* x, int n) {
  float amax = 0;
  for (int i = 0; i < n; ++i) amax = std::max(amax, std::abs(x[i]));
  return amax;
}

template <typename Block>
void PutFiveBits(Block& block, int i, int code) {
  block.qs[i % 16] = static_cast<uint8_t>(block.qs[i % 16] | (code & 15) << (i / 16 * 4));
  block.qh[i / 8] = static_cast<uint8_t>(block.qh[i / 8] | (code >> 4) << (i % 8));
}

inline BlockQ5_0 EncodeQ5_0(const float* x) {
  BlockQ5_0 block = {};
  const float d = AbsMax(x, 32) / 15.5f;
  block.d = FloatToHalf(d);
  for (int i = 0; i < 32; ++i) PutFiveBits(block, i, Code(x[i], d, 16, 31));
  return block;
}

inline BlockQ5_1 EncodeQ5_1(const float* x) {
  BlockQ5_1 block = {};
  const auto [min, max] = std::minmax_element(x, x + 32);
  const float d = (*max - *min) / 31;
  block.d = FloatToHalf(d);
  block.m = FloatToHalf(*min);
  for (int i = 0; i < 32; ++i) PutFiveBits(block, i, Code(x[i] - *min, d, 0, 31));
  return block;
}

// The index of the value nearest to x.
inline int Nearest(const int8_t (&values)[16], float x) {
  int best = 0;
  for (int i = 1; i < 16; ++i) {
    const auto distance = [&](int k) { return std::abs(static_cast<float>(values[k]) - x); };
    if (distance(i) < distance(best)) best = i;
  }
  return best;
}

inline BlockIQ4_NL EncodeIq4Nl(const float* x) {
  BlockIQ4_NL block = {};
  const float d = AbsMax(x, 32) / 120;
  block.d = FloatToHalf(d);
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(Nearest(kIq4NlValues, x[i] / d) |
                                       Nearest(kIq4NlValues, x[i + 16] / d) << 4);
  }
  return block;
}

inline BlockMXFP4 EncodeMxfp4(const float* x) {
  BlockMXFP4 block = {};
  block.e = static_cast<uint8_t>(std::ilogb(AbsMax(x, 32)) - 2 + 127);
  const float d = Mxfp4HalfScale(block.e);
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(Nearest(kMxfp4DoubledValues, x[i] / d) |
                                       Nearest(kMxfp4DoubledValues, x[i + 16] / d) << 4);
  }
  return block;
}

// Scales and minimums of sub-blocks, quantized to integers times a common factor.
template <int kCount>
struct SubBlocks {
  float d;
  float dmin;
  std::array<int, kCount> scales;
  std::array<int, kCount> mins;
};

// For types with minimums: `max_code` levels per scale, scales up to max_scale.
template <int kCount>
SubBlocks<kCount> FitWithMinimums(const float* x, float max_code, int max_scale) {
  constexpr int kSize = 256 / kCount;
  std::array<float, kCount> scales;
  std::array<float, kCount> mins;
  for (int s = 0; s < kCount; ++s) {
    const auto [min, max] = std::minmax_element(x + s * kSize, x + (s + 1) * kSize);
    mins[s] = std::max(0.0f, -*min);
    scales[s] = (*max + mins[s]) / max_code;
  }
  const auto limit = static_cast<float>(max_scale);
  SubBlocks<kCount> fit = {
      AbsMax(scales.data(), kCount) / limit, AbsMax(mins.data(), kCount) / limit, {}, {}};
  for (int s = 0; s < kCount; ++s) {
    fit.scales[s] = Code(scales[s], fit.d, 0, max_scale);
    fit.mins[s] = Code(mins[s], fit.dmin, 0, max_scale);
  }
  return fit;
}

// For symmetric types; 16 sub-blocks of 16 weights.
inline SubBlocks<16> FitSymmetric(const float* x, float max_code, int max_scale) {
  std::array<float, 16> scales;
  for (int s = 0; s < 16; ++s) scales[s] = AbsMax(x + 16 * s, 16) / max_code;
  SubBlocks<16> fit = {AbsMax(scales.data(), 16) / static_cast<float>(max_scale), 0, {}, {}};
  for (int s = 0; s < 16; ++s) fit.scales[s] = Code(scales[s], fit.d, 0, max_scale);
  return fit;
}

template <int kCount>
int SubBlockCode(const SubBlocks<kCount>& fit, const float* x, int i, int zero, int max) {
  const int s = i / (256 / kCount);
  const float min = fit.dmin * static_cast<float>(fit.mins[s]);
  return Code(x[i] + min, fit.d * static_cast<float>(fit.scales[s]), zero, max);
}

inline void PackScalesAndMins(const SubBlocks<8>& fit, uint8_t (&packed)[12]) {
  for (int s = 0; s < 4; ++s) {
    packed[s] = static_cast<uint8_t>(fit.scales[s] | (fit.scales[s + 4] >> 4) << 6);
    packed[s + 4] = static_cast<uint8_t>(fit.mins[s] | (fit.mins[s + 4] >> 4) << 6);
    packed[s + 8] = static_cast<uint8_t>((fit.scales[s + 4] & 15) | (fit.mins[s + 4] & 15) << 4);
  }
}

inline BlockQ2_K EncodeQ2K(const float* x) {
  BlockQ2_K block = {};
  const SubBlocks<16> fit = FitWithMinimums<16>(x, 3, 15);
  block.d = FloatToHalf(fit.d);
  block.dmin = FloatToHalf(fit.dmin);
  for (int s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<uint8_t>(fit.scales[s] | fit.mins[s] << 4);
  }
  for (int i = 0; i < 256; ++i) {
    uint8_t& byte = block.qs[i / 128 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | SubBlockCode(fit, x, i, 0, 3) << (i % 128 / 32 * 2));
  }
  return block;
}

inline BlockQ3_K EncodeQ3K(const float* x) {
  BlockQ3_K block = {};
  const SubBlocks<16> fit = FitSymmetric(x, 3.5f, 31);
  block.d = FloatToHalf(fit.d);
  for (int s = 0; s < 16; ++s) {
    const int scale = fit.scales[s] + 32;
    uint8_t& low = block.scales[s % 8];
    uint8_t& high = block.scales[8 + s % 4];
    low = static_cast<uint8_t>(low | (scale & 15) << (s / 8 * 4));
    high = static_cast<uint8_t>(high | (scale >> 4) << (s / 4 * 2));
  }
  for (int i = 0; i < 256; ++i) {
    const int code = SubBlockCode(fit, x, i, 4, 7);
    uint8_t& low = block.qs[i / 128 * 32 + i % 32];
    uint8_t& high = block.hmask[i % 32];
    low = static_cast<uint8_t>(low | (code & 3) << (i % 128 / 32 * 2));
    high = static_cast<uint8_t>(high | (code >> 2) << (i / 32));
  }
  return block;
}

template <typename Block>
Block EncodeQ4KOrQ5K(const float* x, int max_code) {
  Block block = {};
  const SubBlocks<8> fit = FitWithMinimums<8>(x, static_cast<float>(max_code), 63);
  block.d = FloatToHalf(fit.d);
  block.dmin = FloatToHalf(fit.dmin);
  PackScalesAndMins(fit, block.scales);
  for (int i = 0; i < 256; ++i) {
    const int code = SubBlockCode(fit, x, i, 0, max_code);
    uint8_t& low = block.qs[i / 64 * 32 + i % 32];
    low = static_cast<uint8_t>(low | (code & 15) << (i % 64 / 32 * 4));
    if constexpr (std::is_same_v<Block, BlockQ5_K>) {
      uint8_t& high = block.qh[i % 32];
      high = static_cast<uint8_t>(high | (code >> 4) << (i / 32));
    }
  }
  return block;
}

inline BlockQ6_K EncodeQ6K(const float* x) {
  BlockQ6_K block = {};
  const SubBlocks<16> fit = FitSymmetric(x, 31, 127);
  block.d = FloatToHalf(fit.d);
  for (int s = 0; s < 16; ++s) block.scales[s] = static_cast<int8_t>(fit.scales[s]);
  for (int i = 0; i < 256; ++i) {
    const int code = SubBlockCode(fit, x, i, 32, 63);
    uint8_t& low = block.ql[i / 128 * 64 + i % 64];
    uint8_t& high = block.qh[i / 128 * 32 + i % 32];
    low = static_cast<uint8_t>(low | (code & 15) << (i % 128 / 64 * 4));
    high = static_cast<uint8_t>(high | (code >> 4) << (i % 128 / 32 * 2));
  }
  return block;
}

template <typename Encode>
std::vector<std::byte> EncodeAll(const std::vector<float>& x, size_t block_size, Encode encode) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < x.size(); i += block_size) {
    const auto block = encode(&x[i]);
    const size_t at = bytes.size();
    bytes.resize(at + sizeof(block));
    std::memcpy(bytes.data() + at, &block, sizeof(block));
  }
  return bytes;
}

// True for the types that Encode can make.
inline bool CanEncode(DType dtype) {
  switch (dtype) {
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kIQ4_NL:
    case DType::kMXFP4:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

// `x` in blocks of `dtype`, one of the types that Quantize cannot make.
inline std::vector<std::byte> Encode(DType dtype, const std::vector<float>& x) {
  switch (dtype) {
    case DType::kQ5_0:
      return EncodeAll(x, 32, EncodeQ5_0);
    case DType::kQ5_1:
      return EncodeAll(x, 32, EncodeQ5_1);
    case DType::kIQ4_NL:
      return EncodeAll(x, 32, EncodeIq4Nl);
    case DType::kMXFP4:
      return EncodeAll(x, 32, EncodeMxfp4);
    case DType::kQ2_K:
      return EncodeAll(x, 256, EncodeQ2K);
    case DType::kQ3_K:
      return EncodeAll(x, 256, EncodeQ3K);
    case DType::kQ4_K:
      return EncodeAll(x, 256, [](const float* in) { return EncodeQ4KOrQ5K<BlockQ4_K>(in, 15); });
    case DType::kQ5_K:
      return EncodeAll(x, 256, [](const float* in) { return EncodeQ4KOrQ5K<BlockQ5_K>(in, 31); });
    default:
      return EncodeAll(x, 256, EncodeQ6K);
  }
}

}  // namespace hearth::kernels::test_encoders
