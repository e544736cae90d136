#include "bench/micro/micro.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

namespace hearth::micro {
namespace {

// A pattern that is copied through the memory: making random bytes takes longer than copying them.
constexpr size_t kPatternBytes = 1 << 20;
// 0x3030 to 0x3b3b, whichever of the float types reads them, are normal numbers below 1.
constexpr unsigned kFirstByte = 0x30;
constexpr unsigned kNumBytes = 12;
constexpr uint32_t kSeed = 20;

}  // namespace

Memory::Memory(Budget& budget, size_t bytes) : buffer_(budget, "operands", bytes) {
  std::mt19937 random(kSeed);
  std::vector<std::byte> pattern(kPatternBytes);
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(kFirstByte + random() % kNumBytes);
  for (size_t at = 0; at < bytes; at += kPatternBytes) {
    std::memcpy(buffer_.data() + at, pattern.data(), std::min(kPatternBytes, bytes - at));
  }
}

Pieces::Pieces(const Memory& memory, size_t piece_bytes, const benchmark::State& state)
    : piece_bytes_(piece_bytes) {
  const auto threads = static_cast<size_t>(state.threads());
  const size_t pieces = memory.bytes().size() / threads / piece_bytes;
  begin_ = memory.bytes().data() + static_cast<size_t>(state.thread_index()) * pieces * piece_bytes;
  end_ = begin_ + pieces * piece_bytes;
  at_ = begin_;
}

std::vector<float> SomeFloats(int64_t n) {
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = uniform(random);
  return values;
}

void CountMacs(benchmark::State& state, int64_t macs_per_iteration) {
  const double macs = static_cast<double>(macs_per_iteration * state.iterations());
  state.counters["macs_per_second"] = benchmark::Counter(macs, benchmark::Counter::kIsRate);
}

void CountBytes(benchmark::State& state, int64_t bytes_per_iteration) {
  state.SetBytesProcessed(bytes_per_iteration * state.iterations());
}

void CountItems(benchmark::State& state, int64_t items_per_iteration) {
  state.SetItemsProcessed(items_per_iteration * state.iterations());
}

void Register(const Context& context, const std::string& name, BoundBy bound,
              std::function<void(benchmark::State&)> run) {
  const std::string full_name = context.table.isa + ("/" + name);
  auto* entry = benchmark::RegisterBenchmark(full_name.c_str(), std::move(run));
  entry->UseRealTime();
  if (bound == BoundBy::kMemory) {
    entry->Threads(1);
    if (context.cpus > 1) entry->Threads(context.cpus);
  }
}

}  // namespace hearth::micro
