// Conversion to types that have the kernels which a stored type lacks: of single rows, for `pack`.
//
// Root-mean-square error over root-mean-square weight, for normally distributed weights that were
// first stored in the source type; convert_test.cc asserts the bound on the right:
//
//   Q5_0, IQ4_NL, MXFP4 -> Q8_0   0        exact
//   Q4_K   -> Q4_1                0.00064  <= 0.0007   scales rounded to half
//   Q4_K   -> Q8_0                0.0054   <= 0.006
//   Q5_1, Q5_K, Q6_K -> Q8_0      0.0054   <= 0.006
//   NVFP4, IQ4_XS, IQ3_*, IQ2_*   -> Q8_0       <= 0.006   (of random codes)
//   IQ1_*, TQ1_0, TQ2_0, Q1_0     -> Q8_0       <= 0.006   the same
//   Q2_K   -> Q4_1                0.063    <= 0.07     (Q2_K itself costs 0.33)
//   Q3_K   -> Q4_1                0.079    <= 0.09     (Q3_K itself costs 0.19)
//   IQ4_NL -> Q4_1                0.084    <= 0.09
//   MXFP4  -> Q4_1                0.083    <= 0.09
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/dequantize.h"
#include "kernels/weight_tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

// The largest block, and a multiple of every block size.
constexpr int64_t kChunk = 256;

void ConvertThroughFloat(DType from, const std::byte* in, int64_t n, DType to, std::byte* out) {
  float values[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    Dequantize(from, in, count, values);
    Quantize(to, values, count, out);
    in += RowBytes(from, static_cast<size_t>(count));
    out += RowBytes(to, static_cast<size_t>(count));
  }
}

// Codes of 16 bytes, low nibbles first, through a table.
void ExpandNibbles(const uint8_t (&qs)[16], const int8_t (&values)[16], int8_t (&out)[32]) {
  for (int i = 0; i < 16; ++i) {
    out[i] = values[qs[i] & 15];
    out[i + 16] = values[qs[i] >> 4];
  }
}

void ConvertBlock(const BlockQ5_0& in, BlockQ8_0& out) {
  out.d = in.d;
  for (int i = 0; i < 16; ++i) {
    const int low = (in.qs[i] & 15) | (((in.qh[i / 8] >> (i % 8)) & 1) << 4);
    const int high = (in.qs[i] >> 4) | (((in.qh[2 + i / 8] >> (i % 8)) & 1) << 4);
    out.qs[i] = static_cast<int8_t>(low - 16);
    out.qs[i + 16] = static_cast<int8_t>(high - 16);
  }
}

void ConvertBlock(const BlockIQ4_NL& in, BlockQ8_0& out) {
  out.d = in.d;
  ExpandNibbles(in.qs, kIq4NlValues, out.qs);
}

// Doubled FP4 values reach 12, so that three more bits of a code take part of a power of two that
// a half cannot hold (above 2^15), and rounded codes what lies below its last subnormal (2^-24).
void ConvertBlock(const BlockMXFP4& in, BlockQ8_0& out) {
  const int exponent = in.e - 128;  // of the scale that goes with the doubled values
  const int held = std::clamp(exponent, -24, 15);
  out.d = FloatToHalf(std::ldexp(1.0f, held));
  int8_t values[16];
  for (int i = 0; i < 16; ++i) {
    const float doubled = kMxfp4DoubledValues[i];
    const float value = std::nearbyint(std::ldexp(doubled, exponent - held));
    values[i] = static_cast<int8_t>(std::clamp(value, -127.0f, 127.0f));
  }
  ExpandNibbles(in.qs, values, out.qs);
}

template <typename From, typename To>
void ConvertBlocks(const std::byte* in, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; i += 32) {
    From from;
    To to;
    std::memcpy(&from, in, sizeof(from));
    ConvertBlock(from, to);
    std::memcpy(out, &to, sizeof(to));
    in += sizeof(from);
    out += sizeof(to);
  }
}

// A finite value stays finite, unlike in FloatToHalf.
uint16_t SaturatedHalf(float value) {
  return FloatToHalf(std::isfinite(value) ? std::clamp(value, -65504.0f, 65504.0f) : value);
}

// The eight sub-blocks of a Q4_K block have a scale, a minimum and 32 codes like Q4_1; only
// the products of scales are rounded, to half precision.
void ConvertQ4KToQ4_1(const std::byte* in, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; i += 256) {
    BlockQ4_K from;
    std::memcpy(&from, in, sizeof(from));
    in += sizeof(from);
    const float d = HalfToFloat(from.d);
    const float dmin = HalfToFloat(from.dmin);
    for (int sub = 0; sub < 8; ++sub) {
      const ScaleAndMin packed = UnpackScaleAndMin(from.scales, sub);
      const uint8_t* codes = from.qs + 32 * (sub / 2);
      const int shift = 4 * (sub % 2);
      BlockQ4_1 to;
      to.d = SaturatedHalf(d * static_cast<float>(packed.scale));
      to.m = SaturatedHalf(-(dmin * static_cast<float>(packed.min)));
      for (int j = 0; j < 16; ++j) {
        const int low = (codes[j] >> shift) & 15;
        const int high = (codes[j + 16] >> shift) & 15;
        to.qs[j] = static_cast<uint8_t>(low | (high << 4));
      }
      std::memcpy(out, &to, sizeof(to));
      out += sizeof(to);
    }
  }
}

}  // namespace

ConversionTargets ConversionTargetsOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_K:
    case DType::kIQ4_NL:
    case DType::kMXFP4:
      return {DType::kQ4_1, DType::kQ8_0};
    case DType::kNVFP4:
    case DType::kIQ4_XS:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ1_0:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return {DType::kQ8_0, DType::kQ8_0};
    case DType::kQ2_K:
    case DType::kQ3_K:
      return {DType::kQ4_1, DType::kQ4_1};
    case DType::kF64:
      return {DType::kF32, DType::kF32};
    default:
      return {dtype, dtype};
  }
}

void Convert(DType from, const std::byte* in, int64_t n, DType to, std::byte* out) noexcept {
  if (n <= 0) return;
  if (from == to) {
    std::memcpy(out, in, RowBytes(from, static_cast<size_t>(n)));
  } else if (from == DType::kQ5_0 && to == DType::kQ8_0) {
    ConvertBlocks<BlockQ5_0, BlockQ8_0>(in, n, out);
  } else if (from == DType::kIQ4_NL && to == DType::kQ8_0) {
    ConvertBlocks<BlockIQ4_NL, BlockQ8_0>(in, n, out);
  } else if (from == DType::kMXFP4 && to == DType::kQ8_0) {
    ConvertBlocks<BlockMXFP4, BlockQ8_0>(in, n, out);
  } else if (from == DType::kQ4_K && to == DType::kQ4_1) {
    ConvertQ4KToQ4_1(in, n, out);
  } else {
    ConvertThroughFloat(from, in, n, to, out);
  }
}

}  // namespace hearth::kernels
