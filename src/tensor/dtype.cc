#include "tensor/dtype.h"

#include <array>
#include <cctype>

#include "tensor/blocks.h"

namespace hearth {
namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kTypes = {{
    {DType::kF32, "F32", 0, 1, 4},
    {DType::kF16, "F16", 1, 1, 2},
    {DType::kBF16, "BF16", 30, 1, 2},
    {DType::kQ4_0, "Q4_0", 2, 32, sizeof(BlockQ4_0)},
    {DType::kQ4_1, "Q4_1", 3, 32, sizeof(BlockQ4_1)},
    {DType::kQ5_0, "Q5_0", 6, 32, sizeof(BlockQ5_0)},
    {DType::kQ5_1, "Q5_1", 7, 32, sizeof(BlockQ5_1)},
    {DType::kQ8_0, "Q8_0", 8, 32, sizeof(BlockQ8_0)},
    {DType::kQ2_K, "Q2_K", 10, 256, sizeof(BlockQ2_K)},
    {DType::kQ3_K, "Q3_K", 11, 256, sizeof(BlockQ3_K)},
    {DType::kQ4_K, "Q4_K", 12, 256, sizeof(BlockQ4_K)},
    {DType::kQ5_K, "Q5_K", 13, 256, sizeof(BlockQ5_K)},
    {DType::kQ6_K, "Q6_K", 14, 256, sizeof(BlockQ6_K)},
    {DType::kIQ4_NL, "IQ4_NL", 20, 32, sizeof(BlockIQ4_NL)},
    {DType::kMXFP4, "MXFP4", 39, 32, sizeof(BlockMXFP4)},
    {DType::kNVFP4, "NVFP4", 40, 64, sizeof(BlockNVFP4)},
    {DType::kIQ4_XS, "IQ4_XS", 23, 256, sizeof(BlockIQ4_XS)},
    {DType::kIQ3_XXS, "IQ3_XXS", 18, 256, sizeof(BlockIQ3_XXS)},
    {DType::kIQ3_S, "IQ3_S", 21, 256, sizeof(BlockIQ3_S)},
    {DType::kIQ2_XXS, "IQ2_XXS", 16, 256, sizeof(BlockIQ2_XXS)},
    {DType::kIQ2_XS, "IQ2_XS", 17, 256, sizeof(BlockIQ2_XS)},
    {DType::kIQ2_S, "IQ2_S", 22, 256, sizeof(BlockIQ2_S)},
    {DType::kIQ1_S, "IQ1_S", 19, 256, sizeof(BlockIQ1_S)},
    {DType::kIQ1_M, "IQ1_M", 29, 256, sizeof(BlockIQ1_M)},
    {DType::kTQ1_0, "TQ1_0", 34, 256, sizeof(BlockTQ1_0)},
    {DType::kTQ2_0, "TQ2_0", 35, 256, sizeof(BlockTQ2_0)},
    {DType::kQ1_0, "Q1_0", 41, 128, sizeof(BlockQ1_0)},
    {DType::kI8, "I8", 24, 1, 1},
    {DType::kI16, "I16", 25, 1, 2},
    {DType::kI32, "I32", 26, 1, 4},
    {DType::kI64, "I64", 27, 1, 8},
    {DType::kF64, "F64", 28, 1, 8},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "kTypes is indexed by DType");

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::toupper(static_cast<unsigned char>(a[i])) !=
        std::toupper(static_cast<unsigned char>(b[i]))) {
      return false;
    }
  }
  return true;
}

}  // namespace

const DTypeInfo& InfoOf(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }

std::optional<DType> DTypeFromGguf(uint32_t gguf_id) {
  for (const DTypeInfo& info : kTypes) {
    if (info.gguf_id == gguf_id) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& info : kTypes) {
    if (EqualIgnoringCase(info.name, name)) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace hearth
