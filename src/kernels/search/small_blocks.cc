// Blocks of 32 weights with one scale each: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#include "kernels/search/small_blocks.h"

#include <limits>

#include "kernels/search/fit.h"
#include "kernels/search/nearest_value.h"
#include "kernels/weight_tables.h"

namespace hearth::kernels::search {
namespace {

constexpr int kBlock = 32;
using BlockValues = Values<kBlock>;

// Code i of a block with nibbles, and with a fifth bit where the type has one.
template <typename Block>
void PutCode(Block& block, int i, int code) {
  block.qs[i % 16] = static_cast<uint8_t>(block.qs[i % 16] | (code & 15) << (4 * (i / 16)));
  if constexpr (requires { block.qh; }) {
    block.qh[i / 8] = static_cast<uint8_t>(block.qh[i / 8] | (code >> 4) << (i % 8));
  }
}

// Types that are d * (q - half).
template <typename Block>
void EncodeSymmetric(const float* in, const float* importance, int half, Block& block) {
  BlockValues values;
  values.Load(in, importance, kMaxHalf * static_cast<float>(half));
  block = {};
  const auto end = static_cast<float>(half);
  const CodeRange range = {-end, end - 1};
  float inverse = 0;
  if (!values.is_zero) {
    const float ends[] = {-end, end - 1};
    block.d = values.Stored(FitScale<kBlock>(values.x, values.w, {ends, 2, 8, 0.15f}, range));
    inverse = InverseOf(values.Kept(block.d));
  }
  for (int i = 0; i < kBlock; ++i) {
    const float code = values.is_zero ? 0.0f : range(values.x[i] * inverse);
    PutCode(block, i, static_cast<int>(code) + half);
  }
}

// Types that are d * q + m.
template <typename Block>
void EncodeAffine(const float* in, const float* importance, int levels, Block& block) {
  BlockValues values;
  values.Load(in, importance, kMaxHalf);
  block = {};
  if (values.is_zero) return;
  const Affine fit = FitAffine<kBlock>(values.x, values.w, levels, MinRule::kAny);
  const CodeRange range = {0, static_cast<float>(levels)};
  block.d = values.Stored(fit.scale);
  block.m = values.Stored(fit.min);
  const Affine kept = {values.Kept(block.d), values.Kept(block.m)};
  const float inverse = InverseOf(kept.scale);
  for (int i = 0; i < kBlock; ++i) {
    PutCode(block, i, static_cast<int>(range((values.x[i] - kept.min) * inverse)));
  }
}

// FP4 reaches 6, and 6 * 2^125 is the largest such number that single precision holds.
constexpr int kLargestPower = 252;

// The scale of an MXFP4 block is a power of two: the best of those about the largest value.
uint8_t BestPower(const BlockValues& values) {
  constexpr int kBias = 127;
  float best_error = std::numeric_limits<float>::infinity();
  int best = 0;
  // 6 is the largest FP4 value and 2^2 its power: 2^(exponent - 2) is the first that holds most.
  for (int exponent = values.exponent - 4; exponent <= values.exponent - 1; ++exponent) {
    const int power = std::clamp(exponent + kBias, 0, kLargestPower);
    const float scale = std::ldexp(1.0f, power - kBias - 1 - values.exponent);
    const float error = ErrorOf<kBlock>(values.x, values.w, {scale, 0}, kMxfp4Nearest);
    if (error < best_error) {
      best_error = error;
      best = power;
    }
  }
  return static_cast<uint8_t>(best);
}

// FP4 has its negative values after its others.
int Fp4Code(int index) { return index < 7 ? 15 - index : index - 7; }

}  // namespace

void Encode(const float* in, const float* importance, BlockQ4_0& block) {
  EncodeSymmetric(in, importance, 8, block);
}
void Encode(const float* in, const float* importance, BlockQ5_0& block) {
  EncodeSymmetric(in, importance, 16, block);
}
void Encode(const float* in, const float* importance, BlockQ4_1& block) {
  EncodeAffine(in, importance, 15, block);
}
void Encode(const float* in, const float* importance, BlockQ5_1& block) {
  EncodeAffine(in, importance, 31, block);
}

void Encode(const float* in, const float* importance, BlockQ8_0& block) {
  static constexpr CodeRange kRange = {-127, 127};
  constexpr float kEnds[] = {127};
  BlockValues values;
  values.Load(in, importance, 127 * kMaxHalf);
  block = {};
  if (values.is_zero) return;
  block.d = values.Stored(FitScale<kBlock>(values.x, values.w, {kEnds, 1, 3, 0.2f}, kRange));
  const float inverse = InverseOf(values.Kept(block.d));
  for (int i = 0; i < kBlock; ++i) {
    block.qs[i] = static_cast<int8_t>(kRange(values.x[i] * inverse));
  }
}

void Encode(const float* in, const float* importance, BlockIQ4_NL& block) {
  BlockValues values;
  values.Load(in, importance, 127 * kMaxHalf);
  block = {};
  float inverse = 0;
  if (!values.is_zero) {
    block.d = values.Stored(FitScale<kBlock>(values.x, values.w, kIq4Search, kIq4Nearest));
    inverse = InverseOf(values.Kept(block.d));
  }
  for (int i = 0; i < kBlock; ++i) {
    PutCode(block, i, kIq4Nearest.IndexOf(values.is_zero ? 0.0f : values.x[i] * inverse));
  }
}

void Encode(const float* in, const float* importance, BlockMXFP4& block) {
  BlockValues values;
  values.Load(in, importance, 0x6p125f);
  block = {};
  if (values.is_zero) return;
  block.e = BestPower(values);
  const float inverse = std::ldexp(1.0f, values.exponent + 128 - block.e);
  for (int i = 0; i < kBlock; ++i) {
    PutCode(block, i, Fp4Code(kMxfp4Nearest.IndexOf(values.x[i] * inverse)));
  }
}

}  // namespace hearth::kernels::search
