#include "ops/linear.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/dispatch.h"
#include "tensor/half.h"

namespace hearth {
namespace {

using kernels::BlockQ8;

// Rows handed out at a time, a multiple of a tile's: enough tiles to use a chunk of activations
// several times, few enough to even out the threads.
constexpr int64_t kRowGrain = kMatMulRowGrain;
// Tokens computed per pass over the rows of a grain where weights are floats: 64 rows of 4096
// columns stay in the second-level cache while 32 tokens go by.
constexpr int64_t kTokenTile = 32;
// Products with fewer multiply-adds than this take a few microseconds: less than it costs to share
// them.
constexpr int64_t kAloneMacs = 1 << 17;

void CheckProduct(const Product& product, const FloatView& x) {
  const WeightView& w = product.weights;
  if (w.cols != x.cols || product.out.rows != x.rows || product.out.cols < w.rows ||
      w.experts != 1 || !kernels::HasKernel(w.dtype) ||
      w.is_tiled != TileLayout::IsTiled(w.dtype)) {
    throw Error(ErrorCode::kInternal, "MatMul",
                std::string("operands do not fit: weights ") + NameOf(w.dtype) + " " +
                    std::to_string(w.rows) + "x" + std::to_string(w.cols) + ", input " +
                    std::to_string(x.rows) + "x" + std::to_string(x.cols) + ", output " +
                    std::to_string(product.out.rows) + "x" + std::to_string(product.out.cols));
  }
}

void AddBias(const Product& product, int64_t begin, int64_t end) {
  for (int64_t t = 0; t < product.out.rows; ++t) {
    float* row = product.out.row(t);
    for (int64_t r = begin; r < end; ++r) row[r] += product.bias[r];
  }
}

// Rows [begin, end) of one product of float weights for all tokens.
void ComputeFloatRows(const kernels::KernelTable& table, const Product& product, FloatView x,
                      int64_t begin, int64_t end) {
  const WeightView& w = product.weights;
  for (int64_t t = 0; t < x.rows; t += kTokenTile) {
    kernels::MatMulArgs args;
    args.weights = w.data;
    args.row_bytes = w.row_bytes();
    args.k = w.cols;
    args.x = x.row(t);
    args.x_stride = x.stride;
    args.tokens = std::min(kTokenTile, x.rows - t);
    args.out = product.out.row(t) + begin;
    args.out_stride = product.out.stride;
    args.row_begin = begin;
    args.row_end = end;
    table.matmul[static_cast<size_t>(w.dtype)](args);
  }
}

// Rows [begin, end) of tiled weights for one token whose result goes to `out`; begin is a multiple
// of a tile's rows.
kernels::TileMatMulArgs TileArgs(const Compute& compute, const WeightView& w, const BlockQ8* x,
                                 float* out, int64_t begin, int64_t end) {
  const TileLayout layout = w.tile_layout();
  kernels::TileMatMulArgs args;
  args.tiles = w.data;
  args.tile_bytes = layout.tile_bytes();
  args.blocks = layout.blocks;
  args.x = x;
  args.tokens = 1;
  args.out = out;
  args.out_stride = 0;
  args.rows = w.rows;
  args.tile_begin = begin / TileLayout::kRows;
  args.tile_end = TileLayout::TilesFor(end);
  args.geometry = compute.TilesFor(1);
  return args;
}

// The same for all tokens of a product.
void ComputeTiles(const Compute& compute, const Product& product, const BlockQ8* x, int64_t begin,
                  int64_t end) {
  kernels::TileMatMulArgs args =
      TileArgs(compute, product.weights, x, product.out.data + begin, begin, end);
  args.tokens = product.out.rows;
  args.geometry = compute.TilesFor(args.tokens);
  args.out_stride = product.out.stride;
  compute.kernels().matmul_tiles[static_cast<size_t>(product.weights.dtype)](args);
}

// What tiles are multiplied with: one of the two, and none where weights are floats.
struct TileOperand {
  const BlockQ8* q8 = nullptr;
  FloatView rounded;
};

// Rows [begin, end) of tiled weights for all tokens of x, as float weights: out has row `begin` in
// its first column. A tile becomes floats in parts that stay in the first-level cache while tokens
// go by.
void ComputeFloatTiles(const kernels::KernelTable& table, const WeightView& w, FloatView x,
                       FloatView out, int64_t begin, int64_t end) {
  constexpr int64_t kRows = TileLayout::kRows;
  constexpr int64_t kBlocks = 8;  // of a part; whole groups of every type
  constexpr int64_t kTokens = 64;
  alignas(64) float columns[kBlocks * TileLayout::kBlockColumns * kRows];
  alignas(64) float sums[kTokens * kRows];
  const TileLayout layout = w.tile_layout();
  for (int64_t row = begin; row < end; row += kRows) {
    const std::byte* tile = w.data + static_cast<size_t>(row / kRows) * layout.tile_bytes();
    const int64_t rows = std::min(kRows, end - row);
    for (int64_t t = 0; t < x.rows; t += kTokens) {
      const int64_t tokens = std::min(kTokens, x.rows - t);
      std::fill_n(sums, tokens * kRows, 0.0f);
      for (int64_t first = 0; first < layout.blocks; first += kBlocks) {
        const int64_t count = std::min(kBlocks, layout.blocks - first);
        table.tile_floats[static_cast<size_t>(w.dtype)]({tile, first, count, columns});
        table.columns_times_tokens({columns, count * TileLayout::kBlockColumns,
                                    x.row(t) + first * TileLayout::kBlockColumns, x.stride, tokens,
                                    sums});
      }
      for (int64_t i = 0; i < tokens; ++i) {
        std::copy_n(sums + i * kRows, rows, out.row(t + i) + (row - begin));
      }
    }
  }
}

// Rows [begin, end) of a product; begin is a multiple of a tile's rows.
void ComputeRows(const Compute& compute, const Product& product, FloatView x,
                 const TileOperand& operand, int64_t begin, int64_t end) {
  if (product.weights.is_tiled && operand.q8 == nullptr) {
    FloatView out = product.out;
    out.data += begin;
    ComputeFloatTiles(compute.kernels(), product.weights, operand.rounded, out, begin, end);
  } else if (product.weights.is_tiled) {
    ComputeTiles(compute, product, operand.q8, begin, end);
  } else {
    ComputeFloatRows(compute.kernels(), product, x, begin, end);
  }
  if (product.bias != nullptr) AddBias(product, begin, end);
}

// Grains [first, last) of it.
void ComputeGrains(const Compute& compute, const Product& product, FloatView x,
                   const TileOperand& operand, int64_t first, int64_t last) {
  for (int64_t grain = first; grain < last; ++grain) {
    const int64_t begin = grain * kRowGrain;
    ComputeRows(compute, product, x, operand, begin,
                std::min(begin + kRowGrain, product.weights.rows));
  }
}

// Rows of a tile that one token's list names: all are computed, those are kept.
void ComputeActiveTile(const Compute& compute, const WeightView& w, const TileOperand& operand,
                       std::span<const int32_t> rows, float* out) {
  float of_tile[TileLayout::kRows];
  const int64_t begin = rows.front() / TileLayout::kRows * TileLayout::kRows;
  const int64_t end = std::min(begin + TileLayout::kRows, w.rows);
  if (operand.q8 == nullptr) {
    ComputeFloatTiles(compute.kernels(), w, operand.rounded,
                      {of_tile, 1, TileLayout::kRows, TileLayout::kRows}, begin, end);
  } else {
    compute.kernels().matmul_tiles[static_cast<size_t>(w.dtype)](
        TileArgs(compute, w, operand.q8, of_tile, begin, end));
  }
  for (const int32_t r : rows) out[r] = of_tile[r - begin];
}

// The bytes that `rows` rows and one more take.
size_t OperandBytes(int64_t rows, int64_t cols, TileActivations kind) {
  if (kind == TileActivations::kF16) return static_cast<size_t>((rows + 1) * cols) * sizeof(float);
  return static_cast<size_t>((rows + 1) * ((cols + 31) / 32)) * sizeof(BlockQ8);
}

// To the 11 bits of a binary16 number's fraction, to nearest even, with any exponent of a float.
float RoundToHalfDigits(float x) {
  constexpr uint32_t kDropped = 13;
  constexpr uint32_t kMask = (1u << kDropped) - 1;
  const uint32_t bits = BitsFromFloat(x);
  const uint32_t rounded = (bits + kMask / 2 + ((bits >> kDropped) & 1)) & ~kMask;
  const bool is_finite = (bits & 0x7f800000) != 0x7f800000;
  return FloatFromBits(is_finite ? rounded : bits);
}

}  // namespace

MatMulInput::MatMulInput(Budget& budget, int64_t max_rows, int64_t max_cols, TileActivations kind)
    : kind_(kind), rows_(budget, "activations", OperandBytes(max_rows, max_cols, kind)) {}

uint64_t MatMulInput::ChargedBytes(int64_t max_rows, int64_t max_cols, TileActivations kind) {
  return Buffer::ChargedBytes(OperandBytes(max_rows, max_cols, kind));
}

void MatMulInput::Set(FloatView x) {
  x_ = x;
  is_ready_ = false;
}

// Where the blocks of `rows` rows and one more have room.
BlockQ8* MatMulInput::CheckedBlocks(int64_t rows) {
  if (kind_ != TileActivations::kInt8 || x_.cols % 32 != 0 ||
      OperandBytes(rows, x_.cols, kind_) > rows_.size_bytes()) {
    throw Error(ErrorCode::kInternal, "MatMulInput", "rows cannot be quantized as they are");
  }
  return reinterpret_cast<BlockQ8*>(rows_.data());
}

float* MatMulInput::CheckedFloats(int64_t rows) {
  if (kind_ != TileActivations::kF16 || OperandBytes(rows, x_.cols, kind_) > rows_.size_bytes()) {
    throw Error(ErrorCode::kInternal, "MatMulInput", "rows cannot be rounded as they are");
  }
  return reinterpret_cast<float*>(rows_.data());
}

FloatView MatMulInput::Rounded(Compute& compute) {
  const FloatView out = {CheckedFloats(x_.rows), x_.rows, x_.cols, x_.cols};
  if (is_ready_) return out;
  compute.team().ParallelFor(x_.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::transform(x_.row(r), x_.row(r) + x_.cols, out.row(r), RoundToHalfDigits);
    }
  });
  is_ready_ = true;
  return out;
}

FloatView MatMulInput::RoundedRow(int64_t r) {
  float* out = CheckedFloats(x_.rows) + x_.rows * x_.cols;
  std::transform(x_.row(r), x_.row(r) + x_.cols, out, RoundToHalfDigits);
  return {out, 1, x_.cols, x_.cols};
}

const BlockQ8* MatMulInput::Quantized(Compute& compute) {
  BlockQ8* out = CheckedBlocks(x_.rows);
  if (is_ready_) return out;
  compute.team().ParallelFor(
      x_.rows, 1, [&](int64_t begin, int64_t end, int) { QuantizeRows(compute, begin, end, out); });
  is_ready_ = true;
  return out;
}

const BlockQ8* MatMulInput::QuantizedAlone(Compute& compute) {
  BlockQ8* out = CheckedBlocks(x_.rows);
  if (is_ready_) return out;
  QuantizeRows(compute, 0, x_.rows, out);
  is_ready_ = true;
  return out;
}

void MatMulInput::QuantizeRows(const Compute& compute, int64_t begin, int64_t end,
                               BlockQ8* out) const {
  const int64_t blocks = x_.cols / 32;
  const int64_t panel_tokens = compute.TilesFor(x_.rows).panel_tokens;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t panel = r / panel_tokens * panel_tokens;
    const int64_t panel_size = std::min(panel_tokens, x_.rows - panel);
    compute.kernels().quantize_q8(x_.row(r), x_.cols, out + panel * blocks + (r - panel),
                                  panel_size);
  }
}

const BlockQ8* MatMulInput::QuantizedRow(Compute& compute, int64_t r) {
  BlockQ8* out = CheckedBlocks(x_.rows) + x_.rows * (x_.cols / 32);
  compute.kernels().quantize_q8(x_.row(r), x_.cols, out, 1);
  return out;
}

void MatMul(Compute& compute, std::span<const Product> products, MatMulInput& input) {
  TileOperand operand;
  int64_t grains = 0;
  int64_t macs = 0;
  for (const Product& product : products) {
    CheckProduct(product, input.x());
    if (product.weights.is_tiled && input.kind() == TileActivations::kF16) {
      operand.rounded = input.Rounded(compute);
    } else if (product.weights.is_tiled) {
      operand.q8 = input.Quantized(compute);
    }
    grains += (product.weights.rows + kRowGrain - 1) / kRowGrain;
    macs += product.weights.rows * product.weights.cols * input.x().rows;
  }
  const int64_t grain = macs < kAloneMacs ? grains : 1;
  compute.team().ParallelFor(grains, grain, [&](int64_t begin, int64_t end, int) {
    for (const Product& product : products) {
      const int64_t count = (product.weights.rows + kRowGrain - 1) / kRowGrain;
      const int64_t first = std::max<int64_t>(begin, 0);
      const int64_t last = std::min(end, count);
      if (first < last) ComputeGrains(compute, product, input.x(), operand, first, last);
      begin -= count;
      end -= count;
    }
  });
}

void MatMulRows(Compute& compute, const Product& product, FloatView x, const BlockQ8* q8,
                int64_t begin, int64_t end) noexcept {
  ComputeRows(compute, product, x, {.q8 = q8}, begin, end);
}

namespace {

// Calls fn with the parts of an ascending list that lie in one tile (one row, without tiles).
template <class F>
void ForTiles(std::span<const int32_t> rows, bool is_tiled, F&& fn) {
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (is_tiled && end < rows.size() &&
           rows[end] / TileLayout::kRows == rows[i] / TileLayout::kRows) {
      ++end;
    }
    fn(rows.subspan(i, end - i));
    i = end;
  }
}

}  // namespace

void MatMulActive(Compute& compute, const Product& product, MatMulInput& input,
                  std::span<const std::span<const int32_t>> active) {
  CheckProduct(product, input.x());
  const WeightView& w = product.weights;
  for (int64_t t = 0; t < input.x().rows; ++t) {
    float* out = product.out.row(t);
    std::memset(out, 0, static_cast<size_t>(w.rows) * sizeof(float));
    TileOperand operand;
    if (w.is_tiled && input.kind() == TileActivations::kF16) {
      operand.rounded = input.RoundedRow(t);
    } else if (w.is_tiled) {
      operand.q8 = input.QuantizedRow(compute, t);
    }
    Product row = product;
    row.out = product.out.Rows(t, 1);
    const std::span<const int32_t> rows = active[static_cast<size_t>(t)];
    const auto count = static_cast<int64_t>(rows.size());
    compute.team().ParallelFor(count, kRowGrain, [&](int64_t begin, int64_t end, int) {
      const auto part = rows.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      ForTiles(part, w.is_tiled, [&](std::span<const int32_t> same) {
        if (w.is_tiled) {
          ComputeActiveTile(compute, w, operand, same, out);
        } else {
          ComputeFloatRows(compute.kernels(), row, input.x().Rows(t, 1), same[0], same[0] + 1);
        }
        for (const int32_t r : same) {
          if (product.bias != nullptr) out[r] += product.bias[r];
        }
      });
    });
  }
}

}  // namespace hearth
