#include "pass/math/low_rank.h"

#include <algorithm>

#include "base/error.h"

namespace hearth {
namespace {

// How work is cut: tokens by rows of A, and tokens by columns of B. A piece is some microseconds.
constexpr int64_t kTokensOfPiece = 16;
constexpr int64_t kRowsOfPiece = 8;
constexpr int64_t kColumnsOfPiece = 256;
// Columns whose sums stay in registers while the rows of B go by.
constexpr int64_t kColumnsAtOnce = 16;
// Fewer multiply-adds than this are not worth sharing (ops/linear.cc).
constexpr int64_t kUnsharedMacs = 1 << 17;

int64_t Pieces(int64_t count, int64_t grain) { return (count + grain - 1) / grain; }

void CheckTerm(const LowRankTerm& term, const FloatView& x, const FloatView& scratch) {
  if (term.rank >= 1 && term.first_row >= 0 && term.rows >= 1 &&
      term.first_row + term.rows <= x.rows && term.out.rows == x.rows &&
      term.columns <= term.out.cols && term.place >= 0 && scratch.rows >= x.rows &&
      term.place + term.rank <= scratch.cols) {
    return;
  }
  throw Error(ErrorCode::kInternal, "AddLowRank", "operands do not fit");
}

// Some tokens of a term, and which part of its ranks or columns.
struct Piece {
  int64_t row = 0;  // the first token's
  int64_t rows = 0;
  int64_t part = 0;
};

// Calls fn(term, piece) for all pieces of all terms, of which a term has parts(term) for every
// kTokensOfPiece tokens.
template <typename PartsFn, typename Fn>
void ForPieces(Compute& compute, std::span<const LowRankTerm> terms, int64_t macs, PartsFn&& parts,
               Fn&& fn) {
  int64_t all = 0;
  for (const LowRankTerm& term : terms) all += parts(term) * Pieces(term.rows, kTokensOfPiece);
  compute.team().ParallelFor(
      all, macs < kUnsharedMacs ? all : 1, [&](int64_t begin, int64_t end, int) {
        for (const LowRankTerm& term : terms) {
          const int64_t across = parts(term);
          const int64_t count = across * Pieces(term.rows, kTokensOfPiece);
          for (int64_t i = std::max<int64_t>(begin, 0); i < std::min(end, count); ++i) {
            const int64_t first = i / across * kTokensOfPiece;
            fn(term, Piece{term.first_row + first, std::min(kTokensOfPiece, term.rows - first),
                           i % across});
          }
          begin -= count;
          end -= count;
        }
      });
}

// scratch = scale * x A^T, for some rows of A.
void MultiplyA(const kernels::KernelTable& table, const LowRankTerm& term, FloatView x,
               FloatView scratch, const Piece& piece) {
  kernels::MatMulArgs args;
  args.weights = reinterpret_cast<const std::byte*>(term.a);
  args.row_bytes = static_cast<size_t>(x.cols) * sizeof(float);
  args.k = x.cols;
  args.x = x.row(piece.row);
  args.x_stride = x.stride;
  args.tokens = piece.rows;
  args.row_begin = piece.part * kRowsOfPiece;
  args.row_end = std::min(args.row_begin + kRowsOfPiece, term.rank);
  args.out = scratch.row(piece.row) + term.place + args.row_begin;
  args.out_stride = scratch.stride;
  table.matmul[static_cast<size_t>(DType::kF32)](args);
  for (int64_t t = 0; t < piece.rows; ++t) {
    float* const out = args.out + t * args.out_stride;
    for (int64_t r = 0; r < args.row_end - args.row_begin; ++r) out[r] *= term.scale;
  }
}

// out += scratch B for one token and `count` <= kColumnsAtOnce columns from `column` on.
void AddColumns(const LowRankTerm& term, const float* products, float* out, int64_t column,
                int64_t count) {
  float sums[kColumnsAtOnce] = {};
  const float* b = term.b + column;
  if (count == kColumnsAtOnce) {
    for (int64_t i = 0; i < term.rank; ++i, b += term.columns) {
      for (int64_t c = 0; c < kColumnsAtOnce; ++c) sums[c] += products[i] * b[c];
    }
  } else {
    for (int64_t i = 0; i < term.rank; ++i, b += term.columns) {
      for (int64_t c = 0; c < count; ++c) sums[c] += products[i] * b[c];
    }
  }
  for (int64_t c = 0; c < count; ++c) out[column + c] += sums[c];
}

void AddB(const LowRankTerm& term, FloatView scratch, const Piece& piece) {
  const int64_t begin = piece.part * kColumnsOfPiece;
  const int64_t end = std::min(begin + kColumnsOfPiece, term.columns);
  for (int64_t column = begin; column < end; column += kColumnsAtOnce) {
    for (int64_t t = piece.row; t < piece.row + piece.rows; ++t) {
      AddColumns(term, scratch.row(t) + term.place, term.out.row(t), column,
                 std::min(kColumnsAtOnce, end - column));
    }
  }
}

}  // namespace

void AddLowRank(Compute& compute, FloatView x, std::span<const LowRankTerm> terms,
                FloatView scratch) {
  int64_t macs_of_a = 0, macs_of_b = 0;
  for (const LowRankTerm& term : terms) {
    CheckTerm(term, x, scratch);
    macs_of_a += term.rows * term.rank * x.cols;
    macs_of_b += term.rows * term.rank * term.columns;
  }
  ForPieces(
      compute, terms, macs_of_a,
      [](const LowRankTerm& term) { return Pieces(term.rank, kRowsOfPiece); },
      [&](const LowRankTerm& term, const Piece& piece) {
        MultiplyA(compute.kernels(), term, x, scratch, piece);
      });
  ForPieces(
      compute, terms, macs_of_b,
      [](const LowRankTerm& term) { return Pieces(term.columns, kColumnsOfPiece); },
      [&](const LowRankTerm& term, const Piece& piece) { AddB(term, scratch, piece); });
}

}  // namespace hearth
