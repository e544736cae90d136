// A low-rank adapter's term in both orders of multiplication (MNN §5.5, Table 3), with the sizes of
// the paper's example: a matrix of Qwen2 7B and rank 8.
#include "bench/micro/micro.h"
#include "pass/math/low_rank.h"

namespace hearth::micro {
namespace {

constexpr int64_t kSize = 3584;
constexpr int64_t kRank = 8;

FloatView View(std::vector<float>& values, int64_t cols) {
  return {values.data(), std::ssize(values) / cols, cols, cols};
}

LowRankTerm TermOf(const std::vector<float>& a, const std::vector<float>& b, FloatView out) {
  return {
      .a = a.data(), .b = b.data(), .rank = kRank, .columns = kSize, .out = out, .rows = out.rows};
}

// (x A) B, as passes compute it.
void RunProducts(Compute& compute, int64_t tokens, benchmark::State& state) {
  const std::vector<float> a = SomeFloats(kRank * kSize), b = SomeFloats(kRank * kSize);
  std::vector<float> x = SomeFloats(tokens * kSize), out = SomeFloats(tokens * kSize);
  std::vector<float> scratch(static_cast<size_t>(tokens * kRank));
  const LowRankTerm term = TermOf(a, b, View(out, kSize));
  for (auto _ : state) {
    AddLowRank(compute, View(x, kSize), {&term, 1}, View(scratch, kRank));
    benchmark::ClobberMemory();
  }
  CountMacs(state, 2 * tokens * kRank * kSize);
}

// x (A B): the product of the two small matrices, and then that of a large one.
void RunMerging(Compute& compute, int64_t tokens, benchmark::State& state) {
  std::vector<float> one(static_cast<size_t>(kRank * kRank));
  for (int64_t i = 0; i < kRank; ++i) one[static_cast<size_t>(i * kRank + i)] = 1;
  const std::vector<float> a = SomeFloats(kRank * kSize), x = SomeFloats(tokens * kSize);
  std::vector<float> b = SomeFloats(kRank * kSize), merged(static_cast<size_t>(kSize * kSize));
  std::vector<float> scratch(b.size()), out(static_cast<size_t>(tokens * kSize));
  const LowRankTerm term = TermOf(one, a, View(merged, kSize));
  kernels::MatMulArgs args{};
  args.weights = reinterpret_cast<const std::byte*>(merged.data());
  args.row_bytes = kSize * sizeof(float);
  args.k = kSize;
  args.x = x.data();
  args.x_stride = kSize;
  args.tokens = tokens;
  args.out = out.data();
  args.out_stride = kSize;
  args.row_end = kSize;
  for (auto _ : state) {
    AddLowRank(compute, View(b, kRank), {&term, 1}, View(scratch, kRank));
    compute.kernels().matmul[static_cast<size_t>(DType::kF32)](args);
    benchmark::ClobberMemory();
  }
  CountMacs(state, kRank * kSize * kSize + tokens * kSize * kSize);
}

}  // namespace

void RegisterLowRank(const Context& context) {
  for (const int64_t tokens : {1, 32}) {
    const std::string name = "/tokens:" + std::to_string(tokens);
    const std::string isa = context.table.isa;
    Register(context, "low_rank/products" + name, BoundBy::kCompute,
             [isa, tokens](benchmark::State& state) {
               Compute compute(isa, 1);
               RunProducts(compute, tokens, state);
             });
    Register(context, "low_rank/merging" + name, BoundBy::kCompute,
             [isa, tokens](benchmark::State& state) {
               Compute compute(isa, 1);
               RunMerging(compute, tokens, state);
             });
  }
}

}  // namespace hearth::micro
