#include "kernels/kv_ranges.h"

#include "tensor/fp8.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

constexpr uint16_t kHalfNan = 0x7e00;
constexpr float kMostHalf = 65504.0f;
constexpr float kLeastMagnitude = 0x1p-100f;

// binary16 numbers next to x, which is within their range: not above it, and not below it.
uint16_t HalfNotAbove(float x) {
  const uint16_t half = FloatToHalf(x + 0.0f);  // +0 for -0
  if (HalfToFloat(half) <= x) return half;
  if (half == 0) return 0x8001;  // the least negative one
  return static_cast<uint16_t>((half & 0x8000) != 0 ? half + 1 : half - 1);
}
uint16_t HalfNotBelow(float positive) {
  const uint16_t half = FloatToHalf(positive);
  return static_cast<uint16_t>(HalfToFloat(half) < positive ? half + 1 : half);
}

}  // namespace

KeyRange RangeOfKey(float least, float largest, uint32_t largest_bits, int32_t most_code) noexcept {
  KeyRange range;
  if (largest_bits > BitsFromFloat(kMostHalf)) {
    range.scale = kHalfNan;
    return range;
  }
  range.zero = HalfNotAbove(least);
  range.zero_value = HalfToFloat(range.zero);
  const float step = (largest - range.zero_value) / static_cast<float>(most_code);
  if (step < kLeastMagnitude) return range;
  range.scale = HalfNotBelow(step);
  range.inverse = 1.0f / HalfToFloat(range.scale);
  return range;
}

ValueRange RangeOfValue(uint32_t largest_bits) noexcept {
  ValueRange range;
  if (largest_bits > BitsFromFloat(kMostFp8 * kMostHalf)) {
    range.scale = kHalfNan;
    return range;
  }
  const float largest = FloatFromBits(largest_bits);
  if (largest < kLeastMagnitude) return range;
  range.scale = HalfNotBelow(largest / kMostFp8);
  range.inverse = 1.0f / HalfToFloat(range.scale);
  return range;
}

}  // namespace hearth::kernels
