// Weight matrices on a device, times tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "accel/device.h"
#include "tensor/dtype.h"

namespace hearth::accel {

// A matrix [rows][columns] as it lies in a GGUF file, from byte `begin` of a buffer. Columns are a
// multiple of the type's block size.
struct DeviceMatrix {
  DeviceBuffer* weights = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t begin = 0;
};

// How a product is computed; the order of a sum differs between the two.
enum class MatmulWay : uint8_t {
  kByToken,  // each token by itself: fastest for a few
  kInTiles,  // weights are unpacked once for many tokens
};

// Products with matrices of one type of weights. One thread at a time; must not outlive the device.
class MatrixKernels {
 public:
  // The types that have kernels: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K,
  // IQ4_NL, IQ4_XS, MXFP4.
  static bool Has(DType type);

  // Throws Error(kUnsupported) for other types, and what Device::MakeKernel does.
  MatrixKernels(Device& device, DType type);

  // out [tokens][rows] = the products of x [tokens][columns] with the rows, in float32. Throws
  // Error(kInternal) where buffers are too small, where columns end inside a block and where sizes
  // pass 2^31.
  void Multiply(DeviceQueue& queue, const DeviceMatrix& matrix, DeviceBuffer& x, int64_t tokens,
                DeviceBuffer& out, MatmulWay way);
  // The fastest way for so many tokens.
  static MatmulWay WayFor(int64_t tokens) {
    return tokens <= kFewTokens ? MatmulWay::kByToken : MatmulWay::kInTiles;
  }

 private:
  static constexpr int64_t kFewTokens = 8;

  const DType type_;
  const std::unique_ptr<DeviceKernel> matvec_, matmul_;
};

}  // namespace hearth::accel
