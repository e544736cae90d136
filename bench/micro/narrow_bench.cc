// Floats to int8 activations and to binary16. Operands stay in the caches, as they do in a pass.
#include "bench/micro/micro.h"
#include "tensor/row_groups.h"

namespace hearth::micro {
namespace {

using kernels::BlockQ8;
using kernels::GroupQ8;

constexpr int64_t kSize = 4096;
constexpr int64_t kHeadDim = 128;

}  // namespace

void RegisterNarrow(const Context& context) {
  const auto& table = context.table;
  Register(context, "quantize_q8", BoundBy::kCompute, [&table](benchmark::State& state) {
    const std::vector<float> x = SomeFloats(kSize);
    std::vector<BlockQ8> out(kSize / 32);
    for (auto _ : state) {
      table.quantize_q8(x.data(), kSize, out.data(), 1);
      benchmark::ClobberMemory();
    }
    CountItems(state, kSize);
  });
  Register(context, "quantize_q8_groups", BoundBy::kCompute, [&table](benchmark::State& state) {
    const std::vector<float> x = SomeFloats(kSize);
    std::vector<GroupQ8> out(kSize / kRowGroupWeights);
    for (auto _ : state) {
      table.quantize_q8_groups(x.data(), kSize, out.data());
      benchmark::ClobberMemory();
    }
    CountItems(state, kSize);
  });
  Register(context, "float_to_half", BoundBy::kCompute, [&table](benchmark::State& state) {
    const std::vector<float> x = SomeFloats(kHeadDim);
    std::vector<uint16_t> out(kHeadDim);
    for (auto _ : state) {
      table.kv_encoders.to_half(x.data(), kHeadDim, out.data());
      benchmark::ClobberMemory();
    }
    CountItems(state, kHeadDim);
  });
}

}  // namespace hearth::micro
