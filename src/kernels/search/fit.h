// Scales and minimums with which integer codes come nearest to some values, by least squares.
//
// All functions work on kCount values x with weights w, kCount a multiple of kLanes. Sums go in
// lanes that compilers keep in vector registers, always in the same order: results are the same on
// every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/half.h"

namespace hearth::kernels::search {

inline constexpr int kLanes = 8;
inline constexpr float kMaxHalf = 65504.0f;
// Blocks whose values are all smaller are zeros: no scale in half precision expresses them.
inline constexpr float kTiny = 0x1p-40f;

inline float Total(const float (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// A block, brought into reach of single precision: in = x * 2^exponent, |x| < 2.
template <int kCount>
struct Values {
  float x[kCount];
  float w[kCount];  // how much squared errors count: less than 5, never 0
  int exponent = 0;
  bool is_zero = true;

  // `limit`: the largest magnitude that the type can express.
  void Load(const float* in, const float* importance, float limit) {
    float largest = 0;
    for (int i = 0; i < kCount; ++i) {
      const float value = in[i] == in[i] ? in[i] : 0.0f;
      x[i] = std::min(std::max(value, -limit), limit);
      largest = std::max(largest, std::abs(x[i]));
    }
    is_zero = largest < kTiny;
    if (is_zero) return;
    exponent = std::ilogb(largest);
    const float scale = std::ldexp(1.0f, -exponent);
    for (float& value : x) value *= scale;
    LoadWeights(importance);
  }

  // The half nearest to a scale of x, for values as they came in; and what it is for x.
  uint16_t Stored(float scale) const {
    const float value = std::ldexp(scale, exponent);
    return FloatToHalf(std::min(std::max(value, -kMaxHalf), kMaxHalf));
  }
  float Kept(uint16_t stored) const { return std::ldexp(HalfToFloat(stored), -exponent); }

 private:
  // importance * sqrt(4 * mean(x^2) + x^2): of the weightings that were tried, the one that was
  // good on held-out texts of all of three models. Importance alone was better on texts like those
  // that it was made from and worse on others; with 1 in place of 4 it was the other way round.
  void LoadWeights(const float* importance) {
    // Even what an importance matrix never saw should come near.
    constexpr float kLeast = 1e-6f;
    constexpr float kMeanShare = 4;
    float largest = 0;
    if (importance != nullptr) largest = *std::max_element(importance, importance + kCount);
    float mean_square = 0;
    for (const float value : x) mean_square += value * value / kCount;
    for (int i = 0; i < kCount; ++i) {
      const float counts = largest > 0 ? std::max(importance[i] / largest, kLeast) : 1.0f;
      w[i] = counts * std::sqrt(kMeanShare * mean_square + x[i] * x[i]);
    }
  }
};

// Integer codes low .. high.
struct CodeRange {
  float low;
  float high;

  // The nearest code, halves to even.
  float operator()(float value) const {
    constexpr float kWhole = 0x1.8p23f;  // added to a small number, it leaves no fraction bits
    value = value < low ? low : value;
    value = value > high ? high : value;
    return (value + kWhole) - kWhole;
  }
};

inline float InverseOf(float scale) { return scale == 0 ? 0.0f : 1.0f / scale; }

// Sums over codes q of x * inverse.
struct ScaleSums {
  float xq;
  float qq;
  // How much of the squared error of zeros the best scale saves.
  float gain() const { return qq > 0 ? xq * xq / qq : 0.0f; }
  float scale() const { return qq > 0 ? xq / qq : 0.0f; }
};

// code_of(x * inverse) is the number that the nearest code stands for: a CodeRange, or a
// NearestValue where they are not evenly spaced.
template <int kCount, typename CodeOf>
ScaleSums SumCodes(const float* x, const float* w, float inverse, const CodeOf& code_of) {
  float xq[kLanes] = {}, qq[kLanes] = {};
  for (int i = 0; i < kCount; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float q = code_of(x[i + lane] * inverse);
      const float wq = w[i + lane] * q;
      xq[lane] += wq * x[i + lane];
      qq[lane] += wq * q;
    }
  }
  return {Total(xq), Total(qq)};
}

// The scale d with which d * q comes nearest to x. Tried are scales that give the value of largest
// magnitude a code near `ends` (one or two, with their signs), `steps` to each side; then codes and
// scale follow each other.
struct ScaleSearch {
  const float* ends;
  int num_ends;
  int steps;
  float step;
};
template <int kCount, typename CodeOf>
float FitScale(const float* x, const float* w, const ScaleSearch& search, const CodeOf& code_of) {
  const float extreme =
      *std::max_element(x, x + kCount, [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (std::abs(extreme) < kTiny) return 0;
  ScaleSums best = {0, 0};
  for (int end = 0; end < search.num_ends; ++end) {
    for (int k = -search.steps; k <= search.steps; ++k) {
      const float inverse = (search.ends[end] + search.step * static_cast<float>(k)) / extreme;
      const ScaleSums sums = SumCodes<kCount>(x, w, inverse, code_of);
      if (sums.gain() > best.gain()) best = sums;
    }
  }
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    const ScaleSums sums = SumCodes<kCount>(x, w, InverseOf(best.scale()), code_of);
    if (!(sums.gain() > best.gain())) break;
    best = sums;
  }
  return best.scale();
}

// x ~ scale * q + min.
struct Affine {
  float scale;
  float min;
};

// sum w (x - scale * q - min)^2 with the codes that are nearest.
template <int kCount, typename CodeOf>
float ErrorOf(const float* x, const float* w, Affine fit, const CodeOf& code_of) {
  const float inverse = InverseOf(fit.scale);
  float errors[kLanes] = {};
  for (int i = 0; i < kCount; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float q = code_of((x[i + lane] - fit.min) * inverse);
      const float error = x[i + lane] - (fit.scale * q + fit.min);
      errors[lane] += w[i + lane] * error * error;
    }
  }
  return Total(errors);
}

// What a sub-block of K types may have for a minimum: none above zero.
enum class MinRule : uint8_t { kAny, kAtMostZero };

// The best scale and minimum for the codes that `fit` gives; `fit` itself where there is no better.
template <int kCount>
Affine Refit(const float* x, const float* w, Affine fit, CodeRange range, MinRule rule) {
  const float inverse = InverseOf(fit.scale);
  float ones[kLanes] = {}, qs[kLanes] = {}, qqs[kLanes] = {}, xs[kLanes] = {}, xqs[kLanes] = {};
  for (int i = 0; i < kCount; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float q = range((x[i + lane] - fit.min) * inverse);
      const float weight = w[i + lane];
      ones[lane] += weight;
      qs[lane] += weight * q;
      qqs[lane] += weight * q * q;
      xs[lane] += weight * x[i + lane];
      xqs[lane] += weight * q * x[i + lane];
    }
  }
  const double one = Total(ones), q = Total(qs), qq = Total(qqs), xq = Total(xqs), x1 = Total(xs);
  const double determinant = one * qq - q * q;
  if (!(determinant > 1e-7 * one * qq)) return fit;
  Affine best = {static_cast<float>((one * xq - q * x1) / determinant),
                 static_cast<float>((qq * x1 - q * xq) / determinant)};
  if (rule == MinRule::kAtMostZero && best.min > 0) best = {static_cast<float>(xq / qq), 0};
  return best.scale > 0 ? best : fit;
}

// Codes 0 .. levels. Tried are scales that stretch all values over a few codes fewer or more.
template <int kCount>
Affine FitAffine(const float* x, const float* w, int levels, MinRule rule) {
  const auto [least, most] = std::minmax_element(x, x + kCount);
  const float low = rule == MinRule::kAtMostZero ? std::min(*least, 0.0f) : *least;
  const float high = *most;
  if (!(high - low > kTiny)) return {0, low};
  constexpr int kSteps = 9;
  constexpr float kStep = 0.15f;
  const CodeRange range = {0, static_cast<float>(levels)};
  Affine best = {0, low};
  float best_error = std::numeric_limits<float>::infinity();
  const auto consider = [&](Affine fit) {
    const float error = ErrorOf<kCount>(x, w, fit, range);
    if (!(error < best_error)) return false;
    best_error = error;
    best = fit;
    return true;
  };
  for (int k = -kSteps; k <= kSteps; ++k) {
    const float span = range.high + kStep * static_cast<float>(k);
    if (span < 1) continue;
    // Fewer codes than there are: both ends are cut off; the fit decides how much of each.
    const float scale = (high - low) / span;
    consider(Refit<kCount>(x, w, {scale, low}, range, rule));
  }
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    if (!consider(Refit<kCount>(x, w, best, range, rule))) break;
  }
  return best;
}

}  // namespace hearth::kernels::search
