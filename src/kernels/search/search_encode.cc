#include "kernels/search/search_encode.h"

#include <cstring>

#include "kernels/dequantize.h"
#include "kernels/search/small_blocks.h"
#include "kernels/search/super_blocks.h"

namespace hearth::kernels {
namespace {

template <typename Block>
void EncodeBlocks(int64_t block_size, const float* in, int64_t n, const float* importance,
                  std::byte* out) {
  for (int64_t i = 0; i < n; i += block_size) {
    Block block;
    search::Encode(in + i, importance == nullptr ? nullptr : importance + i, block);
    std::memcpy(out, &block, sizeof(block));
    out += sizeof(block);
  }
}

}  // namespace

bool CanSearch(DType dtype) {
  switch (dtype) {
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return CanQuantize(dtype);
  }
}

void EncodeBySearch(DType dtype, const float* in, int64_t n, const float* importance,
                    std::byte* out) noexcept {
  switch (dtype) {
    case DType::kQ4_0:
      return EncodeBlocks<BlockQ4_0>(32, in, n, importance, out);
    case DType::kQ4_1:
      return EncodeBlocks<BlockQ4_1>(32, in, n, importance, out);
    case DType::kQ5_0:
      return EncodeBlocks<BlockQ5_0>(32, in, n, importance, out);
    case DType::kQ5_1:
      return EncodeBlocks<BlockQ5_1>(32, in, n, importance, out);
    case DType::kQ8_0:
      return EncodeBlocks<BlockQ8_0>(32, in, n, importance, out);
    case DType::kIQ4_NL:
      return EncodeBlocks<BlockIQ4_NL>(32, in, n, importance, out);
    case DType::kMXFP4:
      return EncodeBlocks<BlockMXFP4>(32, in, n, importance, out);
    case DType::kQ2_K:
      return EncodeBlocks<BlockQ2_K>(256, in, n, importance, out);
    case DType::kQ3_K:
      return EncodeBlocks<BlockQ3_K>(256, in, n, importance, out);
    case DType::kQ4_K:
      return EncodeBlocks<BlockQ4_K>(256, in, n, importance, out);
    case DType::kQ5_K:
      return EncodeBlocks<BlockQ5_K>(256, in, n, importance, out);
    case DType::kQ6_K:
      return EncodeBlocks<BlockQ6_K>(256, in, n, importance, out);
    case DType::kIQ4_XS:
      return EncodeBlocks<BlockIQ4_XS>(256, in, n, importance, out);
    default:
      return Quantize(dtype, in, n, out);  // float types; zeros for the rest
  }
}

}  // namespace hearth::kernels
