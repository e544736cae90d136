// Kernels that work on floats one by one, and the two normalizations. The result for an element
// does not depend on where in the array it stands: what is left over at the end goes through the
// same vector operations.
#pragma once

#include "hwy/contrib/math/math-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/simd/vector-inl.h"

namespace hearth::kernels::HEARTH_ISA {

// out[i] = op(a[i], b[i]). out may be a or b.
template <class Op>
HWY_INLINE void Zip(const float* a, const float* b, int64_t n, float* out, Op op) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(op(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i == n) return;
  StoreFirst(op(LoadFirst(d, a + i, n - i), LoadFirst(d, b + i, n - i)), d, out + i, n - i);
}

inline void Add(const float* a, int64_t n, float* out) noexcept {
  Zip(a, out, n, out, [](FloatVec x, FloatVec y) { return hn::Add(x, y); });
}

inline void ScaledAdd(const float* a, float s, int64_t n, float* out) noexcept {
  const FloatVec scale = hn::Set(kFloats, s);
  Zip(a, out, n, out, [scale](FloatVec x, FloatVec y) { return hn::MulAdd(scale, x, y); });
}

// Sum over i of x[i]^2.
inline float SumOfSquares(const float* x, int64_t n) {
  const FloatTag d;
  FloatVec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const FloatVec v = hn::LoadU(d, x + i + j * kLanes);
      sums[j] = hn::MulAdd(v, v, sums[j]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    const FloatVec v = hn::LoadU(d, x + i);
    sums[0] = hn::MulAdd(v, v, sums[0]);
  }
  if (i < n) {
    const FloatVec v = LoadFirst(d, x + i, n - i);
    sums[1] = hn::MulAdd(v, v, sums[1]);
  }
  const FloatVec sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

inline void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
                    float* out) noexcept {
  const FloatTag d;
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const FloatVec scale = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Set(d, mean + eps)));
  Zip(x, weight, n, out, [scale](FloatVec v, FloatVec w) { return hn::Mul(hn::Mul(v, scale), w); });
}

inline float Max(const float* x, int64_t n) {
  const FloatTag d;
  FloatVec max = hn::Set(d, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) max = hn::Max(max, hn::LoadU(d, x + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, max));
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

// exp(x) for x <= 0, within two units in the last place; 0 below -87.33, next to denormals.
HWY_INLINE FloatVec ExpOfNegative(FloatVec x) {
  // x = n ln(2) + r: an integer n and |r| <= ln(2) / 2. Where so large a number is added nothing
  // after the point is left, and n is in the lowest bits.
  const FloatVec shift = hn::Set(kFloats, 0x1.8p23f);
  const FloatVec shifted = hn::MulAdd(x, hn::Set(kFloats, 1.44269504f), shift);
  const FloatVec n = hn::Sub(shifted, shift);
  // ln(2) in two parts, of which the first times n is exact.
  FloatVec r = hn::NegMulAdd(n, hn::Set(kFloats, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(kFloats, 1.42860677e-6f), r);
  // exp(r) = 1 + r + r^2 p(r), p interpolated at the zeros of a Chebyshev polynomial.
  FloatVec p = hn::Set(kFloats, 0.00139261759f);
  p = hn::MulAdd(p, r, hn::Set(kFloats, 0.00836317334f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 0.0416665561f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 0.166665778f));
  p = hn::MulAdd(p, r, hn::Set(kFloats, 0.5f));
  const FloatVec y = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(kFloats, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(IntTag(), shifted));
  const auto scaled = hn::BitCast(kFloats, hn::Add(hn::BitCast(IntTag(), y), exponent));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(kFloats, -87.33f)), scaled);
}

// x[i] = exp(x[i] - max), max being no less than any; returns the sum of the results.
HWY_INLINE float RaiseScores(float* x, int64_t n, float max) {
  const FloatVec most = hn::Set(kFloats, max);
  FloatVec sum = hn::Zero(kFloats);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const FloatVec e = ExpOfNegative(hn::Sub(hn::LoadU(kFloats, x + i), most));
    hn::StoreU(e, kFloats, x + i);
    sum = hn::Add(sum, e);
  }
  if (i < n) {
    const FloatVec e = ExpOfNegative(hn::Sub(LoadFirst(kFloats, x + i, n - i), most));
    StoreFirst(e, kFloats, x + i, n - i);
    const auto used = hn::FirstN(kFloats, static_cast<size_t>(n - i));
    sum = hn::Add(sum, hn::IfThenElseZero(used, e));
  }
  return hn::GetLane(hn::SumOfLanes(kFloats, sum));
}

inline void Softmax(float* x, int64_t n) noexcept {
  const FloatVec sum = hn::Set(kFloats, RaiseScores(x, n, Max(x, n)));
  const FloatVec scale = hn::Div(hn::Set(kFloats, 1.0f), sum);
  Zip(x, x, n, x, [scale](FloatVec e, FloatVec) { return hn::Mul(e, scale); });
}

// 1 / (1 + exp(-g)), through exp(-|g|) which cannot overflow.
HWY_INLINE FloatVec Sigmoid(FloatVec g) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec e = hn::Exp(d, hn::Neg(hn::Abs(g)));
  const FloatVec numerator = hn::IfThenElse(hn::Lt(g, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

// The share of a normal distribution below g. Its error is at most 1.5e-7
// (Abramowitz and Stegun, Handbook of Mathematical Functions, formula 7.1.26).
HWY_INLINE FloatVec NormalShare(FloatVec g) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  const FloatVec z = hn::Mul(hn::Abs(g), hn::Set(d, 0.707106781f));
  const FloatVec t = hn::Div(one, hn::MulAdd(z, hn::Set(d, 0.3275911f), one));
  FloatVec sum = hn::Set(d, 1.061405429f);
  for (const float factor : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) {
    sum = hn::MulAdd(sum, t, hn::Set(d, factor));
  }
  const FloatVec far = hn::Mul(hn::Mul(sum, t), hn::Exp(d, hn::Neg(hn::Mul(z, z))));
  const FloatVec tail = hn::Mul(far, hn::Set(d, 0.5f));  // beyond |g|, on one side
  return hn::IfThenElse(hn::Lt(g, zero), tail, hn::Sub(one, tail));
}

// "Active" is a comparison, not a maximum: it gives the zeros of the contract for NaN as well,
// and is the same test that selects neurons for sparse execution.
template <FfnActivation kind>
HWY_INLINE FloatVec Activate(FloatVec g, FloatVec u, FloatVec threshold) {
  const FloatVec zero = hn::Zero(kFloats);
  if constexpr (kind == FfnActivation::kSilu) {
    return hn::Mul(hn::Mul(g, Sigmoid(g)), u);
  } else if constexpr (kind == FfnActivation::kRelu) {
    return hn::IfThenElseZero(hn::Gt(g, zero), hn::Mul(g, u));
  } else if constexpr (kind == FfnActivation::kFatRelu) {
    return hn::IfThenElseZero(hn::Gt(g, threshold), hn::Mul(g, u));
  } else if constexpr (kind == FfnActivation::kThresholdedSilu) {
    const FloatVec silu = hn::Mul(g, Sigmoid(g));
    return hn::IfThenElseZero(hn::Gt(hn::Abs(silu), threshold), hn::Mul(silu, u));
  } else if constexpr (kind == FfnActivation::kGelu) {
    // (1 + tanh(z)) / 2 is the sigmoid of 2 z. Beyond 40 that is 1 or 0, and no cube overflows.
    const FloatVec most = hn::Set(kFloats, 40.0f);
    const FloatVec near = hn::Max(hn::Min(g, most), hn::Neg(most));
    const FloatVec cubic = hn::MulAdd(hn::Mul(near, near), hn::Set(kFloats, 0.0713548163f),
                                      hn::Set(kFloats, 1.59576912f));
    return hn::Mul(hn::Mul(g, Sigmoid(hn::Mul(near, cubic))), u);
  } else if constexpr (kind == FfnActivation::kGeluErf) {
    return hn::Mul(hn::Mul(g, NormalShare(g)), u);
  } else if constexpr (kind == FfnActivation::kClampedSwiglu) {
    const FloatVec most = hn::Min(g, threshold);
    const FloatVec clamped = hn::Max(hn::Min(u, threshold), hn::Neg(threshold));
    const FloatVec swish = hn::Mul(most, Sigmoid(hn::Mul(most, hn::Set(kFloats, 1.702f))));
    return hn::Mul(swish, hn::Add(clamped, hn::Set(kFloats, 1.0f)));
  } else {
    const auto active = hn::And(hn::Gt(g, zero), hn::Gt(u, zero));
    return hn::IfThenElseZero(active, hn::Mul(g, u));
  }
}

template <FfnActivation kind>
void ActivateFfn(const float* gate, const float* up, int64_t n, float threshold,
                 float* out) noexcept {
  const FloatVec limit = hn::Set(kFloats, threshold);
  Zip(gate, up, n, out, [limit](FloatVec g, FloatVec u) { return Activate<kind>(g, u, limit); });
}

struct RotatedPair {
  FloatVec first;
  FloatVec second;
};

HWY_INLINE RotatedPair Rotate(FloatVec a, FloatVec b, FloatVec cos, FloatVec sin) {
  return {hn::NegMulAdd(b, sin, hn::Mul(a, cos)), hn::MulAdd(b, cos, hn::Mul(a, sin))};
}

inline void RopeAdjacent(float* x, const float* cos, const float* sin, int64_t pairs) {
  const FloatTag d;
  for (int64_t i = 0; i < pairs; i += kLanes) {
    const int64_t n = pairs - i < kLanes ? pairs - i : kLanes;
    HWY_ALIGN float buffer[2 * hn::MaxLanes(d)] = {};
    const bool whole = n == kLanes;
    float* at = whole ? x + 2 * i : buffer;
    if (!whole) __builtin_memcpy(buffer, x + 2 * i, static_cast<size_t>(n) * 2 * sizeof(float));
    FloatVec a;
    FloatVec b;
    hn::LoadInterleaved2(d, at, a, b);
    const FloatVec c = whole ? hn::LoadU(d, cos + i) : LoadFirst(d, cos + i, n);
    const FloatVec s = whole ? hn::LoadU(d, sin + i) : LoadFirst(d, sin + i, n);
    const RotatedPair rotated = Rotate(a, b, c, s);
    hn::StoreInterleaved2(rotated.first, rotated.second, d, at);
    if (!whole) __builtin_memcpy(x + 2 * i, buffer, static_cast<size_t>(n) * 2 * sizeof(float));
  }
}

inline void RopeHalves(float* x, const float* cos, const float* sin, int64_t pairs) {
  const FloatTag d;
  float* y = x + pairs;
  int64_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const RotatedPair rotated = Rotate(hn::LoadU(d, x + i), hn::LoadU(d, y + i),
                                       hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreU(rotated.first, d, x + i);
    hn::StoreU(rotated.second, d, y + i);
  }
  const int64_t n = pairs - i;
  if (n == 0) return;
  const RotatedPair rotated = Rotate(LoadFirst(d, x + i, n), LoadFirst(d, y + i, n),
                                     LoadFirst(d, cos + i, n), LoadFirst(d, sin + i, n));
  StoreFirst(rotated.first, d, x + i, n);
  StoreFirst(rotated.second, d, y + i, n);
}

inline void Rope(float* x, const float* cos, const float* sin, int64_t pairs,
                 RopeLayout layout) noexcept {
  if (layout == RopeLayout::kAdjacent) {
    RopeAdjacent(x, cos, sin, pairs);
  } else {
    RopeHalves(x, cos, sin, pairs);
  }
}

}  // namespace hearth::kernels::HEARTH_ISA
