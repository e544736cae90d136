#include "ops/linear.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hearth {
namespace {

using kernels::ActivationKind;
using kernels::BlockQ8;
using kernels::MatMulArgs;

// Rows handed out at a time, and tokens computed per pass over them: 16 rows of a 4-bit matrix
// with 4096 columns (36 KB) stay in the first-level caches while 32 tokens go by.
constexpr int64_t kRowGrain = 16;
constexpr int64_t kTokenTile = 32;
// Products with fewer multiply-adds than this take a few microseconds: less than it costs to share
// them.
constexpr int64_t kAloneMacs = 1 << 17;

void CheckProduct(const Product& product, const FloatView& x) {
  const WeightView& w = product.weights;
  if (w.cols != x.cols || product.out.rows != x.rows || product.out.cols < w.rows ||
      w.experts != 1 || !kernels::HasKernel(w.dtype)) {
    throw Error(ErrorCode::kInternal, "MatMul",
                std::string("operands do not fit: weights ") + NameOf(w.dtype) + " " +
                    std::to_string(w.rows) + "x" + std::to_string(w.cols) + ", input " +
                    std::to_string(x.rows) + "x" + std::to_string(x.cols) + ", output " +
                    std::to_string(product.out.rows) + "x" + std::to_string(product.out.cols));
  }
}

void AddBias(const Product& product, int64_t begin, int64_t end, int64_t first_token,
             int64_t tokens) {
  for (int64_t t = first_token; t < first_token + tokens; ++t) {
    float* row = product.out.row(t);
    for (int64_t r = begin; r < end; ++r) row[r] += product.bias[r];
  }
}

// Rows [begin, end) of one product for all tokens. q8 is null for float weights.
void ComputeRows(const kernels::KernelTable& table, const Product& product,
                 const MatMulInput& input, const BlockQ8* q8, int64_t begin, int64_t end) {
  const WeightView& w = product.weights;
  const FloatView x = input.x();
  const bool is_float = kernels::ActivationKindOf(w.dtype) == ActivationKind::kFloat;
  const kernels::MatMulFn matmul = table.matmul[static_cast<size_t>(w.dtype)];
  for (int64_t row = begin; row < end; row += kRowGrain) {
    const int64_t row_end = std::min(row + kRowGrain, end);
    for (int64_t t = 0; t < x.rows; t += kTokenTile) {
      const int64_t tokens = std::min(kTokenTile, x.rows - t);
      MatMulArgs args;
      args.weights = w.data;
      args.row_bytes = w.row_bytes();
      args.k = w.cols;
      args.x = is_float ? static_cast<const void*>(x.row(t))
                        : static_cast<const void*>(q8 + t * input.quantized_stride());
      args.x_stride = is_float ? x.stride : input.quantized_stride();
      args.tokens = tokens;
      args.out = product.out.row(t) + row;
      args.out_stride = product.out.stride;
      args.row_begin = row;
      args.row_end = row_end;
      matmul(args);
      if (product.bias != nullptr) AddBias(product, row, row_end, t, tokens);
    }
  }
}

bool NeedsQuantized(const Product& product) {
  return kernels::ActivationKindOf(product.weights.dtype) == ActivationKind::kQ8;
}

}  // namespace

MatMulInput::MatMulInput(Budget& budget, int64_t max_rows, int64_t max_cols)
    : blocks_(budget, "activations",
              static_cast<size_t>(max_rows * ((max_cols + 31) / 32)) * sizeof(BlockQ8)) {}

uint64_t MatMulInput::ChargedBytes(int64_t max_rows, int64_t max_cols) {
  return Buffer::ChargedBytes(static_cast<size_t>(max_rows * ((max_cols + 31) / 32)) *
                              sizeof(BlockQ8));
}

void MatMulInput::Set(FloatView x) {
  x_ = x;
  is_quantized_ = false;
}

const BlockQ8* MatMulInput::Quantized(Compute& compute) {
  const int64_t blocks_per_row = quantized_stride();
  const auto blocks = static_cast<size_t>(x_.rows * blocks_per_row);
  if (x_.cols % 32 != 0 || blocks * sizeof(BlockQ8) > blocks_.size_bytes()) {
    throw Error(ErrorCode::kInternal, "MatMulInput", "rows cannot be quantized as they are");
  }
  auto* out = reinterpret_cast<BlockQ8*>(blocks_.data());
  if (!is_quantized_) {
    const auto quantize = compute.kernels().quantize_q8;
    compute.team().ParallelFor(x_.rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        quantize(x_.row(r), x_.cols, out + r * blocks_per_row);
      }
    });
    is_quantized_ = true;
  }
  return out;
}

void MatMul(Compute& compute, std::span<const Product> products, MatMulInput& input) {
  const BlockQ8* q8 = nullptr;
  int64_t grains = 0;
  int64_t macs = 0;
  for (const Product& product : products) {
    CheckProduct(product, input.x());
    if (NeedsQuantized(product)) q8 = input.Quantized(compute);
    grains += (product.weights.rows + kRowGrain - 1) / kRowGrain;
    macs += product.weights.rows * product.weights.cols * input.x().rows;
  }
  const int64_t grain = macs < kAloneMacs ? grains : 1;
  compute.team().ParallelFor(grains, grain, [&](int64_t begin, int64_t end, int) {
    for (const Product& product : products) {
      const int64_t count = (product.weights.rows + kRowGrain - 1) / kRowGrain;
      const int64_t first = std::max<int64_t>(begin, 0);
      const int64_t last = std::min(end, count);
      if (first < last) {
        ComputeRows(compute.kernels(), product, input, q8, first * kRowGrain,
                    std::min(last * kRowGrain, product.weights.rows));
      }
      begin -= count;
      end -= count;
    }
  });
}

void MatMulActive(Compute& compute, const Product& product, MatMulInput& input,
                  std::span<const std::span<const int32_t>> active) {
  CheckProduct(product, input.x());
  const WeightView& w = product.weights;
  const FloatView x = input.x();
  const bool is_float = !NeedsQuantized(product);
  const BlockQ8* q8 = is_float ? nullptr : input.Quantized(compute);
  const kernels::MatMulFn matmul = compute.kernels().matmul[static_cast<size_t>(w.dtype)];
  for (int64_t t = 0; t < x.rows; ++t) {
    float* out = product.out.row(t);
    std::memset(out, 0, static_cast<size_t>(w.rows) * sizeof(float));
    const std::span<const int32_t> rows = active[static_cast<size_t>(t)];
    const auto count = static_cast<int64_t>(rows.size());
    compute.team().ParallelFor(count, kRowGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        MatMulArgs args;
        args.weights = w.data;
        args.row_bytes = w.row_bytes();
        args.k = w.cols;
        args.x = is_float ? static_cast<const void*>(x.row(t))
                          : static_cast<const void*>(q8 + t * input.quantized_stride());
        args.x_stride = 0;
        args.tokens = 1;
        args.row_begin = rows[static_cast<size_t>(i)];
        args.row_end = args.row_begin + 1;
        args.out = out + args.row_begin;
        args.out_stride = 0;
        matmul(args);
        if (product.bias != nullptr) out[args.row_begin] += product.bias[args.row_begin];
      }
    });
  }
}

}  // namespace hearth
