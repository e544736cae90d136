#include "import/quantized/coded_matrix.h"

#include "tensor/half.h"

namespace hearth {

void ReadWords(const OpenTensor& from, uint64_t first, std::span<uint32_t> out) {
  from.source->ReadAt(from.tensor.offset + first * sizeof(uint32_t), std::as_writable_bytes(out));
}

void ReadFloats(const OpenTensor& from, uint64_t first, std::span<float> out) {
  const uint64_t bytes = InfoOf(from.tensor.dtype).block_bytes;
  const uint64_t begin = from.tensor.offset + first * bytes;
  if (from.tensor.dtype == DType::kF32) {
    return from.source->ReadAt(begin, std::as_writable_bytes(out));
  }
  std::vector<uint16_t> halves(out.size());
  from.source->ReadAt(begin, std::as_writable_bytes(std::span(halves)));
  const bool is_bf16 = from.tensor.dtype == DType::kBF16;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = is_bf16 ? Bf16ToFloat(halves[i]) : HalfToFloat(halves[i]);
  }
}

}  // namespace hearth
