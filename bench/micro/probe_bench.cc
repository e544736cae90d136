// The machine's own speeds, beside which the others are read.
#include "bench/micro/micro.h"

namespace hearth::micro {
namespace {

constexpr int64_t kRounds = 1 << 14;
constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

void RegisterProbes(const Context& context) {
  const auto& table = context.table;
  const Memory& memory = context.memory;
  Register(context, "probe_int8", BoundBy::kMemory, [&table](benchmark::State& state) {
    int64_t macs = 0;
    for (auto _ : state) macs = table.probe_int8(kRounds);
    CountMacs(state, macs);
  });
  Register(context, "probe_float", BoundBy::kMemory, [&table](benchmark::State& state) {
    int64_t operations = 0;
    for (auto _ : state) operations = table.probe_float(kRounds);
    CountMacs(state, operations / 2);
  });
  Register(context, "probe_read", BoundBy::kMemory, [&table, &memory](benchmark::State& state) {
    Pieces pieces(memory, kReadBytes, state);
    for (auto _ : state) {
      benchmark::DoNotOptimize(table.probe_read(pieces.Next(), kReadBytes));
    }
    CountBytes(state, kReadBytes);
  });
}

}  // namespace hearth::micro
