#include "accel/matrix_kernels.h"

#include "accel/launch_sizes.h"
#include "base/error.h"

namespace hearth::accel {
namespace {

// Must equal ROWS_OF_GROUP, TILE and SIDE of opencl/kernels/matmul.cl.
constexpr size_t kRowsOfGroup = 4;
constexpr size_t kTile = 32;
constexpr size_t kSide = 8;

ProgramName MatmulProgramOf(DType type) {
  if (MatrixKernels::Has(type)) return {"matmul", NameOf(type)};
  throw Error(ErrorCode::kUnsupported, NameOf(type), "devices have no kernel for this type");
}

}  // namespace

bool MatrixKernels::Has(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      return true;
    default:
      return false;
  }
}

MatrixKernels::MatrixKernels(Device& device, DType type)
    : type_(type),
      matvec_(device.MakeKernel(MatmulProgramOf(type), "matvec")),
      matmul_(device.MakeKernel(MatmulProgramOf(type), "matmul")) {}

void MatrixKernels::Multiply(DeviceQueue& queue, const DeviceMatrix& matrix, DeviceBuffer& x,
                             int64_t tokens, DeviceBuffer& out, MatmulWay way) {
  if (matrix.columns % static_cast<int64_t>(InfoOf(type_).block_size) != 0) {
    throw Error(ErrorCode::kInternal, "a kernel", "rows that end inside a block of weights");
  }
  const auto row_bytes =
      static_cast<int64_t>(RowBytes(type_, static_cast<size_t>(ToInt(matrix.columns))));
  CheckRoom(*matrix.weights, {matrix.rows, row_bytes, 1, matrix.begin});
  CheckRoom(x, {tokens, matrix.columns});
  CheckRoom(out, {tokens, matrix.rows});
  const int32_t rows = ToInt(matrix.rows);
  const int32_t columns = ToInt(matrix.columns);
  if (way == MatmulWay::kByToken) {
    const KernelArgument arguments[] = {matrix.weights, matrix.begin, row_bytes, rows,
                                        columns,        &x,           &out};
    queue.Launch(*matvec_,
                 {{kLanes * static_cast<size_t>(tokens), RoundedUp(rows, kRowsOfGroup)},
                  {kLanes, kRowsOfGroup}},
                 arguments);
    return;
  }
  const KernelArgument arguments[] = {matrix.weights, matrix.begin, row_bytes,     rows,
                                      columns,        &x,           ToInt(tokens), &out};
  queue.Launch(*matmul_,
               {{RoundedUp(rows, kTile) / kTile * kSide, RoundedUp(tokens, kTile) / kTile * kSide},
                {kSide, kSide}},
               arguments);
}

}  // namespace hearth::accel
