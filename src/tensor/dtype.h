// Element types of tensors, as they lie in a GGUF file and in memory.
//
// Quantized types store blocks along a row (ne[0]); every row starts a new block. How to add one:
// docs/howto/add-quant-type.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kMXFP4,
  kNVFP4,
  kIQ4_XS,
  kIQ3_XXS,
  kIQ3_S,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ1_S,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
};
inline constexpr int kNumDTypes = 32;

struct DTypeInfo {
  DType dtype;
  const char* name;      // as people write it: "Q4_0", "F16"
  uint32_t gguf_id;      // type number in GGUF files
  uint32_t block_size;   // weights per block; 1 for plain types
  uint32_t block_bytes;  // bytes per block
};

// Facts about a type. Never fails: the enum is closed.
const DTypeInfo& InfoOf(DType dtype);
inline const char* NameOf(DType dtype) { return InfoOf(dtype).name; }

// The type with this number in GGUF, or nothing where Hearth does not know it.
std::optional<DType> DTypeFromGguf(uint32_t gguf_id);

// By name, in either case ("q4_0"), or nothing.
std::optional<DType> DTypeFromName(std::string_view name);

// Bytes of a row of n weights. n must be a multiple of the block size.
inline size_t RowBytes(DType dtype, size_t n) {
  const DTypeInfo& info = InfoOf(dtype);
  return n / info.block_size * info.block_bytes;
}

}  // namespace hearth
