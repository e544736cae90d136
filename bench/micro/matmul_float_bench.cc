// Products of float weights.
#include "bench/micro/micro.h"

namespace hearth::micro {
namespace {

using kernels::KernelTable;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kColumns = 4096;
constexpr int64_t kRows = 64;
constexpr int64_t kMatrixRows = 4096;

void RunFloat(const KernelTable& table, const Memory& memory, DType dtype, int64_t tokens,
              benchmark::State& state) {
  const size_t row_bytes = RowBytes(dtype, kColumns);
  const std::vector<float> x = SomeFloats(tokens * kColumns);
  std::vector<float> out(static_cast<size_t>(tokens * kMatrixRows));
  Pieces pieces(memory, kRows * row_bytes, state);
  kernels::MatMulArgs args{};
  args.row_bytes = row_bytes;
  args.k = kColumns;
  args.x = x.data();
  args.x_stride = kColumns;
  args.tokens = tokens;
  args.out = out.data();
  args.out_stride = kMatrixRows;
  args.row_end = kRows;
  for (auto _ : state) {
    args.weights = pieces.Next();
    table.matmul[static_cast<size_t>(dtype)](args);
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(kRows * row_bytes));
  CountMacs(state, kRows * kColumns * tokens);
}

}  // namespace

void RegisterMatMulFloat(const Context& context) {
  const KernelTable& table = context.table;
  const Memory& memory = context.memory;
  for (const DType dtype : kTypes) {
    for (const int64_t tokens : {1, 32}) {  // ops/linear.cc hands over at most 32
      Register(context,
               std::string("matmul/") + NameOf(dtype) + "/tokens:" + std::to_string(tokens),
               BoundBy::kMemory, [&table, &memory, dtype, tokens](benchmark::State& state) {
                 RunFloat(table, memory, dtype, tokens, state);
               });
    }
  }
}

}  // namespace hearth::micro
