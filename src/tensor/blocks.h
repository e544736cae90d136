// Quantized blocks byte for byte as they lie in GGUF files (the public GGUF specification).
//
// Value formulas (q: stored code, d: scale, m: minimum):
//   Q4_0 d*(q-8)   Q4_1 d*q+m   Q5_0 d*(q-16)   Q5_1 d*q+m   Q8_0 d*q
//   IQ4_NL d*table[q]   MXFP4 2^(e-127) * table[q]   TQ1_0, TQ2_0 d*(q-1), q of 0 to 2
//   NVFP4 as MXFP4, with a small float for 2^(e-127)   Q1_0 d or -d
//
//   K types: 256 weights with scales (and minimums) of sub-blocks that are quantized themselves.
//   IQ4_XS likewise: d*(scale-32)*table[q], table as for IQ4_NL.
//
//   IQ3_*, IQ2_*, IQ1_*: 256 weights; an index stands for four or eight of them at once, whose
//   values a grid has (kernels/stored/grids.h). The signs of IQ3_* and IQ2_* are bits beside it.
//   IQ1_*: d*(2*scale+1)*(grid +- 1/8).
//
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
struct BlockNVFP4 {
  uint8_t d[4];    // per 16 weights: unsigned E4M3
  uint8_t qs[32];  // eight bytes per 16 weights, whose first eight are low nibbles
};
struct BlockIQ4_XS {
  HalfBits d;
  uint16_t scales_h;    // upper two bits of eight 6-bit scales
  uint8_t scales_l[4];  // lower four
  uint8_t qs[128];      // per 32 weights as in IQ4_NL
};
struct BlockIQ3_XXS {
  HalfBits d;
  uint8_t qs[64];                // an index per 4 weights
  uint8_t scales_and_signs[32];  // a word per 32 weights: four times 7 bits of signs, a scale above
};
struct BlockIQ3_S {
  HalfBits d;
  uint8_t qs[64];     // an index per 4 weights, but for its ninth bit
  uint8_t qh[8];      // ninth bits
  uint8_t signs[32];  // bit i % 8 of byte i / 8 for weight i
  uint8_t scales[4];  // a nibble per 32 weights
};
struct BlockIQ2_XXS {
  HalfBits d;
  uint16_t qs[32];  // 8 bytes per 32 weights: an index per 8, then a word as in IQ3_XXS
};
struct BlockIQ2_XS {
  HalfBits d;
  uint16_t qs[32];    // per 8 weights: an index of 9 bits, 7 bits of signs above
  uint8_t scales[8];  // a nibble per 16 weights
};
struct BlockIQ2_S {
  HalfBits d;
  uint8_t qs[32];  // an index per 8 weights, but for its upper two bits
  uint8_t signs[32];
  uint8_t qh[8];  // upper bits
  uint8_t scales[8];
};
struct BlockIQ1_S {
  HalfBits d;
  uint8_t qs[32];  // an index per 8 weights, but for its upper three bits
  uint16_t qh[8];  // per 32 weights: four times those bits, a scale of 3 bits, the sign of 1/8
};
struct BlockIQ1_M {
  uint8_t qs[32];      // as in IQ1_S
  uint8_t qh[16];      // a nibble per 8 weights: the upper bits, the sign of 1/8
  uint16_t scales[4];  // 16 scales of 3 bits, four in each; above them four bits each of d
};
struct BlockTQ1_0 {
  uint8_t qs[48];  // five weights in a byte, in base 3: 32 bytes, then 16
  uint8_t qh[4];   // four weights in a byte
  HalfBits d;
};
struct BlockTQ2_0 {
  uint8_t qs[64];
  HalfBits d;
};
struct BlockQ1_0 {
  HalfBits d;
  uint8_t qs[16];  // bit i % 8 of byte i / 8 for weight i
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockNVFP4) == 36 && sizeof(BlockIQ4_XS) == 136 && sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ2_XS) == 74 && sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66 && sizeof(BlockQ1_0) == 18);

}  // namespace hearth
