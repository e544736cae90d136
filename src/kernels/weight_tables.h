// What the codes of non-linear types stand for, and parts of block formats that dequantization
// and conversion share. Facts of the public GGUF formats.
#pragma once

#include <cstdint>

#include "tensor/half.h"

namespace hearth::kernels {

inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

// FP4 (sign, two exponent bits, one mantissa bit) times two, which makes integers of its halves.
inline constexpr int8_t kMxfp4DoubledValues[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                   0, -1, -2, -3, -4, -6, -8, -12};

// Half of an MXFP4 block's scale, 2^(e - 128), to go with the doubled values.
inline float Mxfp4HalfScale(uint8_t e) {
  // Below 2^-126 the power of two is a subnormal: a single mantissa bit.
  return FloatFromBits(e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23);
}

// Half of the scale of 16 weights of NVFP4, to go with the doubled values: unsigned E4M3 (four bits
// of exponent with a bias of 7, three of mantissa), whose NaN counts as 0.
inline float Nvfp4HalfScale(uint8_t e4m3) {
  if (e4m3 == 0x7f) return 0;
  // Below 2^-6 a subnormal, as is the float that is multiplied.
  return FloatFromBits(static_cast<uint32_t>(e4m3 & 0x7f) << 20) * 0x1p119f;
}

// The 6-bit scale and minimum of sub-block `index` (0 to 7) of Q4_K and Q5_K. The first four lie
// in the low six bits of bytes 0..3 (scales) and 4..7 (minimums); the last four are split between
// the nibbles of bytes 8..11 and the two bits left over in bytes 0..7.
struct ScaleAndMin {
  int scale;
  int min;
};
inline ScaleAndMin UnpackScaleAndMin(const uint8_t (&packed)[12], int index) {
  if (index < 4) return {packed[index] & 63, packed[index + 4] & 63};
  return {(packed[index + 4] & 15) | ((packed[index - 4] >> 6) << 4),
          (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4)};
}
// The way back, for all eight.
inline void PackScalesAndMins(const uint8_t* scales, const uint8_t* mins, uint8_t (&packed)[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | (scales[i + 4] >> 4) << 6);
    packed[i + 4] = static_cast<uint8_t>(mins[i] | (mins[i + 4] >> 4) << 6);
    packed[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
  }
}

// Scale `index` (0 to 15) of Q3_K, -32 to 31: low nibbles in bytes 0..7 (first eight in the low
// halves), upper two bits in bytes 8..11.
inline int Q3Scale(const uint8_t (&packed)[12], int index) {
  const int low = index < 8 ? packed[index] & 15 : packed[index - 8] >> 4;
  const int high = (packed[8 + index % 4] >> (2 * (index / 4))) & 3;
  return (low | (high << 4)) - 32;
}

// Scale `index` (0 to 7) of IQ4_XS, -32 to 31: low nibbles, and two upper bits elsewhere.
inline int Iq4XsScale(const uint8_t (&low)[4], uint16_t high, int index) {
  return ((low[index / 2] >> (4 * (index % 2)) & 15) | (high >> (2 * index) & 3) << 4) - 32;
}

}  // namespace hearth::kernels
