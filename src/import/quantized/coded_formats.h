// Matrices as GPTQ, AWQ, compressed-tensors and folders of 8-bit floats store them. Internal to
// import/.
//
// Follows the layouts that AutoGPTQ, AutoAWQ, compressed-tensors and transformers write. K is the
// number of inputs, N that of outputs, b the bits of a code; codes fill 32-bit words from the
// lowest bit on.
//   GPTQ        qweight [K b/32, N], along K; qzeros [groups, N b/32], along N; scales [groups, N]
//   AWQ         qweight [K, N/8], qzeros [groups, N/8], along N in the order 0 2 4 6 1 3 5 7;
//               scales [groups, N]
//   compressed  weight_packed [N, K b/32], along K; weight_zero_point [N b/32, groups], along N;
//               weight_scale [N, groups]
//   8 bits      weight [N, K], int8 or E4M3 floats; a scale for each row, block or matrix
#pragma once

#include <memory>
#include <optional>

#include "import/quantized/coded_matrix.h"

namespace hearth {

// Tensors have the shapes that `shape` implies: callers check that. Zeros are added to
// `zeros_less`; without any, the zero is the middle code.
struct PackedParts {
  OpenTensor codes;
  OpenTensor scales;
  std::optional<OpenTensor> zeros;
  int bits = 4;
  int zeros_less = 0;
};
std::unique_ptr<CodedMatrix> MakeGptqMatrix(CodeShape shape, PackedParts parts);
std::unique_ptr<CodedMatrix> MakeAwqMatrix(CodeShape shape, PackedParts parts);
std::unique_ptr<CodedMatrix> MakeCompressedMatrix(CodeShape shape, PackedParts parts);

struct ByteParts {
  OpenTensor codes;
  OpenTensor scales;        // [rows / block_rows, groups], both rounded up
  uint64_t block_rows = 1;  // rows that share scales
};
// int8, or 8-bit floats where the codes' tensor says so.
std::unique_ptr<CodedMatrix> MakeByteMatrix(CodeShape shape, ByteParts parts);

}  // namespace hearth
