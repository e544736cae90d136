// From the rows of one neuron to its bundle (format/bundle_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/bundle_layout.h"
#include "tensor/dtype.h"

namespace hearth {

// A row of `hidden` weights as a GGUF file stores it: float or quantized, not I8 to F64.
struct StoredRow {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;  // RowBytes(dtype, hidden) bytes; need no alignment
};

inline StoredRow FloatRow(const float* row) {
  return {DType::kF32, reinterpret_cast<const std::byte*>(row)};
}

// What a bundle is made of. `down` is the neuron's column of the down matrix, as a row; up and bias
// count where the layout has such parts.
struct NeuronRows {
  StoredRow gate;
  StoredRow up;
  StoredRow down;
  float bias = 0;
};

// One per thread: it holds a row to work in.
class BundleEncoder {
 public:
  // hidden: a multiple of the block sizes of all types that rows will come in.
  BundleEncoder(BundleLayout layout, int64_t hidden);

  const BundleLayout& layout() const { return layout_; }

  // Writes all layout().stride bytes of a bundle, checks and zeros included. A row of the type that
  // its part has is moved exactly, any other is converted (kernels::Convert).
  void Encode(const NeuronRows& neuron, std::span<std::byte> bundle);

 private:
  void PutRow(const StoredRow& row, const BundlePart& part, std::span<std::byte> bundle);

  BundleLayout layout_;
  int64_t hidden_;
  std::vector<std::byte> converted_;
};

// The row of a part, as GGUF blocks of part.dtype: the inverse of what Encode moves.
void ReadBundleRow(const BundlePart& part, int64_t hidden, std::span<const std::byte> bundle,
                   std::byte* row);

}  // namespace hearth
