// Quantized blocks byte for byte as they lie in GGUF files (the public GGUF specification).
//
// Value formulas (q: stored code, d: scale, m: minimum):
//   Q4_0 d*(q-8)   Q4_1 d*q+m   Q5_0 d*(q-16)   Q5_1 d*q+m   Q8_0 d*q
//   IQ4_NL d*table[q]   MXFP4 2^(e-127) * table[q]
//   K types: 256 weights with scales (and minimums) of sub-blocks that are quantized themselves.
// Half-precision fields are raw bits; see tensor/half.h.
#pragma once

#include <cstdint>

namespace hearth {

using HalfBits = uint16_t;

struct BlockQ4_0 {
  HalfBits d;
  uint8_t qs[16];  // low nibbles: weights 0..15, high nibbles: 16..31
};
struct BlockQ4_1 {
  HalfBits d;
  HalfBits m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  HalfBits d;
  uint8_t qh[4];  // fifth bits, bit i for weight i
  uint8_t qs[16];
};
struct BlockQ5_1 {
  HalfBits d;
  HalfBits m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  HalfBits d;
  int8_t qs[32];
};
struct BlockQ2_K {
  uint8_t scales[16];  // per 16 weights: low nibble scale, high nibble minimum
  uint8_t qs[64];
  HalfBits d;
  HalfBits dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];  // third bits
  uint8_t qs[64];
  uint8_t scales[12];  // sixteen 6-bit scales
  HalfBits d;
};
struct BlockQ4_K {
  HalfBits d;
  HalfBits dmin;
  uint8_t scales[12];  // eight 6-bit scales and eight 6-bit minimums
  uint8_t qs[128];
};
struct BlockQ5_K {
  HalfBits d;
  HalfBits dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  HalfBits d;
};
struct BlockIQ4_NL {
  HalfBits d;
  uint8_t qs[16];
};
struct BlockMXFP4 {
  uint8_t e;  // shared exponent, biased by 127
  uint8_t qs[16];
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockMXFP4) == 17);

}  // namespace hearth
