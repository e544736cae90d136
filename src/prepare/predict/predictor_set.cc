#include "prepare/predict/predictor_set.h"

#include "kernels/dequantize.h"

namespace hearth {
namespace {

std::vector<std::byte> Quantized(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(RowBytes(dtype, values.size()));
  kernels::Quantize(dtype, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

}  // namespace

QuantizedPredictor QuantizePredictor(const MadePredictor& made, DType dtype) {
  return {.rank = made.rank,
          .down = Quantized(made.down, dtype),
          .up = Quantized(made.up, dtype),
          .bias = made.bias,
          .threshold = made.threshold};
}

}  // namespace hearth
