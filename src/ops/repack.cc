#include "ops/repack.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "kernels/dispatch.h"
#include "kernels/kernel_table.h"
#include "kernels/tile_pack.h"

namespace hearth {
namespace {

// Conversion error that asks for the larger type, relative to the weights' root mean square.
// Q4_K to Q4_1 costs about 3e-4; IQ4_NL and MXFP4 to Q4_1 cost some percent, to Q8_0 nothing.
constexpr double kMaxRelativeError = 0.01;

double RelativeError(DType stored, std::span<const std::byte> sample, int64_t count, DType to) {
  const auto n = static_cast<size_t>(count);
  std::vector<float> exact(n), approximate(n);
  std::vector<std::byte> converted(RowBytes(to, n));
  kernels::Dequantize(stored, sample.data(), count, exact.data());
  kernels::Convert(stored, sample.data(), count, to, converted.data());
  kernels::Dequantize(to, converted.data(), count, approximate.data());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(exact[i]) - approximate[i];
    error += d * d;
    norm += static_cast<double>(exact[i]) * exact[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : 0;
}

}  // namespace

bool IsWeightType(DType stored) {
  switch (stored) {
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
      return false;
    default:
      return true;
  }
}

DType ResidentType(DType stored, std::span<const std::byte> sample, int64_t cols) {
  if (kernels::HasKernel(stored)) return stored;
  if (!IsWeightType(stored)) {
    throw Error(ErrorCode::kUnsupported, "weights",
                std::string("type ") + NameOf(stored) + " cannot be multiplied");
  }
  return ConvertedType(stored, sample, cols);
}

DType ConvertedType(DType stored, std::span<const std::byte> sample, int64_t cols) {
  const kernels::ConversionTargets targets = kernels::ConversionTargetsOf(stored);
  const size_t row_bytes = RowBytes(stored, static_cast<size_t>(cols));
  const auto rows = static_cast<int64_t>(row_bytes > 0 ? sample.size() / row_bytes : 0);
  if (targets.first == targets.second || rows == 0) return targets.first;
  const double error = RelativeError(stored, sample, rows * cols, targets.first);
  return error <= kMaxRelativeError ? targets.first : targets.second;
}

void RepackRows(DType from, std::span<const std::byte> in, int64_t rows, int64_t cols, DType to,
                std::byte* out) {
  kernels::Convert(from, in.data(), rows * cols, to, out);
}

void PackTiles(DType dtype, std::span<const std::byte> in, int64_t rows, int64_t cols,
               std::byte* tiles) {
  kernels::PackTiles(dtype, TileLayout(dtype, cols), in.data(),
                     RowBytes(dtype, static_cast<size_t>(cols)), rows, tiles);
}

void MakeResident(DType stored, std::span<const std::byte> in, int64_t rows, const WeightView& as,
                  std::byte* out, std::vector<std::byte>& scratch) {
  if (as.dtype == stored && !as.is_tiled) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  const auto cols = static_cast<size_t>(as.cols);
  const auto count = static_cast<size_t>(rows);
  if (as.dtype == DType::kF32) {
    ToFloat(stored, in, {reinterpret_cast<float*>(out), count * cols});
    return;
  }
  std::span<const std::byte> converted = in;
  if (as.dtype != stored) {
    std::byte* to = out;
    if (as.is_tiled) {
      scratch.resize(count * as.row_bytes());
      to = scratch.data();
      converted = scratch;
    }
    RepackRows(stored, in, rows, as.cols, as.dtype, to);
  }
  if (as.is_tiled) PackTiles(as.dtype, converted, rows, as.cols, out);
}

void ToFloat(DType from, std::span<const std::byte> in, std::span<float> out) {
  if (!IsWeightType(from)) {
    throw Error(ErrorCode::kUnsupported, "weights",
                std::string("type ") + NameOf(from) + " is not a number of a model");
  }
  kernels::Dequantize(from, in.data(), static_cast<int64_t>(out.size()), out.data());
}

}  // namespace hearth
