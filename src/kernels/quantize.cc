#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/dequantize.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

constexpr int kBlock = 32;
constexpr float kMaxHalf = 65504.0f;

// The block's values, NaN as 0 and the rest within +-limit, so that no scale overflows its half
// and no code its integer.
void LoadBlock(const float* in, float limit, float (&x)[kBlock]) {
  for (int i = 0; i < kBlock; ++i) {
    const float value = in[i] == in[i] ? in[i] : 0.0f;
    x[i] = std::min(std::max(value, -limit), limit);
  }
}

struct Extremes {
  float min;
  float max;
  float magnitude() const { return std::max(max, -min); }
};

// Searched in eight lanes, which compilers can keep in vector registers.
Extremes FindExtremes(const float (&x)[kBlock]) {
  constexpr int kLanes = 8;
  float min[kLanes];
  float max[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) min[lane] = max[lane] = x[lane];
  for (int i = kLanes; i < kBlock; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      min[lane] = std::min(min[lane], x[i + lane]);
      max[lane] = std::max(max[lane], x[i + lane]);
    }
  }
  return {*std::min_element(min, min + kLanes), *std::max_element(max, max + kLanes)};
}

// 1/d, or 0 where d vanishes in half precision: every code then stands for the same value, and
// the neutral one is as good as any.
float InverseOf(float d) { return HalfToFloat(FloatToHalf(d)) == 0.0f ? 0.0f : 1.0f / d; }

void QuantizeBlock(const float* in, BlockQ4_0& block) {
  float x[kBlock];
  LoadBlock(in, 8 * kMaxHalf, x);
  const float amax = FindExtremes(x).magnitude();
  // With its sign; the first of several.
  const float largest =
      *std::find_if(x, x + kBlock, [amax](float value) { return std::abs(value) == amax; });
  const float d = largest / -8.0f;
  const float inverse = InverseOf(d);
  block.d = FloatToHalf(d);
  // x / d lies in [-8, 8]; adding 8.5 and cutting off rounds to the nearest code. Only the
  // far end, 16, has no code.
  const auto code = [inverse](float value) {
    return std::min(static_cast<int>(value * inverse + 8.5f), 15);
  };
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(code(x[i]) | (code(x[i + 16]) << 4));
  }
}

void QuantizeBlock(const float* in, BlockQ4_1& block) {
  float x[kBlock];
  LoadBlock(in, kMaxHalf, x);
  const Extremes extremes = FindExtremes(x);
  const float m = extremes.min;
  const float d = (extremes.max - m) / 15.0f;
  const float inverse = InverseOf(d);
  block.d = FloatToHalf(d);
  block.m = FloatToHalf(m);
  const auto code = [inverse, m](float value) {
    return std::min(static_cast<int>((value - m) * inverse + 0.5f), 15);
  };
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(code(x[i]) | (code(x[i + 16]) << 4));
  }
}

// To the nearest integer, halves away from zero, exactly; written so that it vectorizes.
int RoundHalfAway(float value) {
  const int whole = static_cast<int>(value);
  const float rest = value - static_cast<float>(whole);
  return whole + static_cast<int>(rest >= 0.5f) - static_cast<int>(rest <= -0.5f);
}

void QuantizeBlock(const float* in, BlockQ8_0& block) {
  float x[kBlock];
  LoadBlock(in, 127 * kMaxHalf, x);
  const float d = FindExtremes(x).magnitude() / 127.0f;
  const float inverse = InverseOf(d);
  block.d = FloatToHalf(d);
  for (int i = 0; i < kBlock; ++i) {
    block.qs[i] = static_cast<int8_t>(RoundHalfAway(x[i] * inverse));
  }
}

template <typename Block>
void QuantizeBlocks(const float* in, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; i += kBlock) {
    Block block;
    QuantizeBlock(in + i, block);
    std::memcpy(out, &block, sizeof(block));
    out += sizeof(block);
  }
}

template <typename FromFloat>
void QuantizeNumbers(const float* in, int64_t n, std::byte* out, FromFloat from_float) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t number = from_float(in[i]);
    std::memcpy(out + 2 * i, &number, sizeof(number));
  }
}

}  // namespace

bool CanQuantize(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      return true;
    default:
      return false;
  }
}

void Quantize(DType dtype, const float* in, int64_t n, std::byte* out) noexcept {
  if (n <= 0) return;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return QuantizeNumbers(in, n, out, FloatToHalf);
    case DType::kBF16:
      return QuantizeNumbers(in, n, out, FloatToBf16);
    case DType::kQ4_0:
      return QuantizeBlocks<BlockQ4_0>(in, n, out);
    case DType::kQ4_1:
      return QuantizeBlocks<BlockQ4_1>(in, n, out);
    case DType::kQ8_0:
      return QuantizeBlocks<BlockQ8_0>(in, n, out);
    default:
      // The caller did not ask CanQuantize; leave bytes that are at least defined.
      std::memset(out, 0, RowBytes(dtype, static_cast<size_t>(n)));
  }
}

}  // namespace hearth::kernels
