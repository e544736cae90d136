// One function per block type: the public GGUF block formats, written out. All products of a
// scale and a code are exact in float; at most the final difference or sum is rounded.
#include "kernels/dequantize.h"

#include <cstring>
#include <limits>

#include "kernels/stored/unpack.h"
#include "kernels/weight_tables.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace hearth::kernels {
namespace {

void DequantizeBlock(const BlockQ4_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

void DequantizeBlock(const BlockQ4_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block.qs[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(block.qs[i] >> 4) + m;
  }
}

// The fifth bit of weight i, at its place in the code.
int FifthBit(const uint8_t (&qh)[4], int i) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; }

void DequantizeBlock(const BlockQ5_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 16; ++i) {
    const int low = (block.qs[i] & 15) | FifthBit(block.qh, i);
    const int high = (block.qs[i] >> 4) | FifthBit(block.qh, i + 16);
    out[i] = d * static_cast<float>(low - 16);
    out[i + 16] = d * static_cast<float>(high - 16);
  }
}

void DequantizeBlock(const BlockQ5_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int i = 0; i < 16; ++i) {
    const int low = (block.qs[i] & 15) | FifthBit(block.qh, i);
    const int high = (block.qs[i] >> 4) | FifthBit(block.qh, i + 16);
    out[i] = d * static_cast<float>(low) + m;
    out[i + 16] = d * static_cast<float>(high) + m;
  }
}

void DequantizeBlock(const BlockQ8_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

void DequantizeBlock(const BlockIQ4_NL& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4NlValues[block.qs[i] & 15]);
    out[i + 16] = d * static_cast<float>(kIq4NlValues[block.qs[i] >> 4]);
  }
}

void DequantizeBlock(const BlockMXFP4& block, float* out) {
  const float d = Mxfp4HalfScale(block.e);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kMxfp4DoubledValues[block.qs[i] & 15]);
    out[i + 16] = d * static_cast<float>(kMxfp4DoubledValues[block.qs[i] >> 4]);
  }
}

void DequantizeBlock(const BlockNVFP4& block, float* out) {
  for (int s = 0; s < 4; ++s, out += 16) {
    const float d = Nvfp4HalfScale(block.d[s]);
    for (int i = 0; i < 8; ++i) {
      const uint8_t codes = block.qs[8 * s + i];
      out[i] = d * static_cast<float>(kMxfp4DoubledValues[codes & 15]);
      out[i + 8] = d * static_cast<float>(kMxfp4DoubledValues[codes >> 4]);
    }
  }
}

void DequantizeBlock(const BlockIQ4_XS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int b = 0; b < 8; ++b, out += 32) {
    const float scale = d * static_cast<float>(Iq4XsScale(block.scales_l, block.scales_h, b));
    for (int i = 0; i < 16; ++i) {
      const uint8_t codes = block.qs[16 * b + i];
      out[i] = scale * static_cast<float>(kIq4NlValues[codes & 15]);
      out[i + 16] = scale * static_cast<float>(kIq4NlValues[codes >> 4]);
    }
  }
}

// In the K types, `plane` p of a half block of 128 weights is 32 weights that share byte positions
// and differ in the bits they take: weight 32p + i lies in byte i.

void DequantizeBlock(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int half = 0; half < 2; ++half) {
    for (int plane = 0; plane < 4; ++plane) {
      for (int i = 0; i < 32; ++i) {
        const uint8_t packed = block.scales[8 * half + 2 * plane + i / 16];
        const int code = (block.qs[32 * half + i] >> (2 * plane)) & 3;
        *out++ =
            d * static_cast<float>((packed & 15) * code) - dmin * static_cast<float>(packed >> 4);
      }
    }
  }
}

void DequantizeBlock(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int half = 0; half < 2; ++half) {
    for (int plane = 0; plane < 4; ++plane) {
      const int first = 8 * half + 2 * plane;
      const float scales[2] = {d * static_cast<float>(Q3Scale(block.scales, first)),
                               d * static_cast<float>(Q3Scale(block.scales, first + 1))};
      for (int i = 0; i < 32; ++i) {
        const int low = (block.qs[32 * half + i] >> (2 * plane)) & 3;
        const int third = (block.hmask[i] >> (4 * half + plane)) & 1;
        *out++ = scales[i / 16] * static_cast<float>((low | (third << 2)) - 4);
      }
    }
  }
}

void DequantizeBlock(const BlockQ4_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleAndMin packed = UnpackScaleAndMin(block.scales, sub);
    const float min = dmin * static_cast<float>(packed.min);
    const uint8_t* codes = block.qs + 32 * (sub / 2);  // two sub-blocks share 32 bytes
    const int shift = 4 * (sub % 2);
    for (int i = 0; i < 32; ++i) {
      *out++ = d * static_cast<float>(packed.scale * ((codes[i] >> shift) & 15)) - min;
    }
  }
}

void DequantizeBlock(const BlockQ5_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleAndMin packed = UnpackScaleAndMin(block.scales, sub);
    const float min = dmin * static_cast<float>(packed.min);
    const uint8_t* codes = block.qs + 32 * (sub / 2);
    const int shift = 4 * (sub % 2);
    for (int i = 0; i < 32; ++i) {
      const int code = ((codes[i] >> shift) & 15) | (((block.qh[i] >> sub) & 1) << 4);
      *out++ = d * static_cast<float>(packed.scale * code) - min;
    }
  }
}

void DequantizeBlock(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int half = 0; half < 2; ++half) {
    for (int plane = 0; plane < 4; ++plane) {
      // Planes 0 and 1 take the low nibbles of 64 bytes, 2 and 3 the high ones.
      const uint8_t* low_bits = block.ql + 64 * half + 32 * (plane % 2);
      const uint8_t* high_bits = block.qh + 32 * half;
      const int8_t* codes = block.scales + 8 * half + 2 * plane;
      const float scales[2] = {d * static_cast<float>(codes[0]), d * static_cast<float>(codes[1])};
      for (int i = 0; i < 32; ++i) {
        const int low = (low_bits[i] >> (4 * (plane / 2))) & 15;
        const int high = (high_bits[i] >> (2 * plane)) & 3;
        *out++ = scales[i / 16] * static_cast<float>((low | (high << 4)) - 32);
      }
    }
  }
}

template <typename Block>
void DequantizeBlocks(const std::byte* in, int64_t n, int64_t block_size, float* out) {
  for (int64_t i = 0; i < n; i += block_size) {
    Block block;  // a copy, as the bytes may lie anywhere
    std::memcpy(&block, in, sizeof(block));
    DequantizeBlock(block, out + i);
    in += sizeof(block);
  }
}

// Types that kernels unpack while they multiply.
void DequantizeStored(DType dtype, const std::byte* in, int64_t n, float* out) {
  const TileFormat format = TileFormatOf(dtype);
  const int64_t columns = 32 / format.scales_of_block;
  UnpackedBlock block;
  for (int64_t first = 0; first < n; first += format.stored_columns) {
    UnpackBlock(dtype, in, block);
    for (int64_t i = 0; i < format.stored_columns; ++i) {
      out[first + i] =
          block.scales[i / columns] * static_cast<float>(block.codes[i] - format.code_offset);
    }
    in += format.stored_bytes;
  }
}

// As HalfToFloat, without branches, so that compilers vectorize it: the exponent is moved to its
// new bias by an exact multiplication, which also normalizes subnormals.
float HalfToFloatBranchless(uint16_t h) {
  constexpr float kTwoTo112 = 0x1p112f;
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t scaled = BitsFromFloat(FloatFromBits(magnitude) * kTwoTo112);
  const uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;  // infinity, NaN
  return FloatFromBits(scaled | special | (static_cast<uint32_t>(h & 0x8000) << 16));
}

// Plain numbers of type T, one by one.
template <typename T, typename ToFloat>
void DequantizeNumbers(const std::byte* in, int64_t n, float* out, ToFloat to_float) {
  for (int64_t i = 0; i < n; ++i) {
    T number;
    std::memcpy(&number, in + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = to_float(number);
  }
}

}  // namespace

void Dequantize(DType dtype, const std::byte* in, int64_t n, float* out) noexcept {
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      return DequantizeNumbers<uint16_t>(in, n, out, HalfToFloatBranchless);
    case DType::kBF16:
      return DequantizeNumbers<uint16_t>(in, n, out, Bf16ToFloat);
    case DType::kF64:
      return DequantizeNumbers<double>(in, n, out, [](double x) { return static_cast<float>(x); });
    case DType::kQ4_0:
      return DequantizeBlocks<BlockQ4_0>(in, n, 32, out);
    case DType::kQ4_1:
      return DequantizeBlocks<BlockQ4_1>(in, n, 32, out);
    case DType::kQ5_0:
      return DequantizeBlocks<BlockQ5_0>(in, n, 32, out);
    case DType::kQ5_1:
      return DequantizeBlocks<BlockQ5_1>(in, n, 32, out);
    case DType::kQ8_0:
      return DequantizeBlocks<BlockQ8_0>(in, n, 32, out);
    case DType::kIQ4_NL:
      return DequantizeBlocks<BlockIQ4_NL>(in, n, 32, out);
    case DType::kMXFP4:
      return DequantizeBlocks<BlockMXFP4>(in, n, 32, out);
    case DType::kNVFP4:
      return DequantizeBlocks<BlockNVFP4>(in, n, 64, out);
    case DType::kIQ4_XS:
      return DequantizeBlocks<BlockIQ4_XS>(in, n, 256, out);
    case DType::kQ2_K:
      return DequantizeBlocks<BlockQ2_K>(in, n, 256, out);
    case DType::kQ3_K:
      return DequantizeBlocks<BlockQ3_K>(in, n, 256, out);
    case DType::kQ4_K:
      return DequantizeBlocks<BlockQ4_K>(in, n, 256, out);
    case DType::kQ5_K:
      return DequantizeBlocks<BlockQ5_K>(in, n, 256, out);
    case DType::kQ6_K:
      return DequantizeBlocks<BlockQ6_K>(in, n, 256, out);
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
      return DequantizeStored(dtype, in, n, out);
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  // Not weights: the caller's mistake, made visible in whatever is computed from them.
  for (int64_t i = 0; i < n; ++i) out[i] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace hearth::kernels
