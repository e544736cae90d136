// What the micro benchmarks share: memory that no cache holds, and names that say what runs.
//
// A benchmark is called ISA/KERNEL/VARIANT, for instance avx2/matmul_tiles/Q4_0/tokens:96. What
// waits for memory also runs on all processors at once (".../threads:2"). Rates are over real time,
// all threads together: bytes_per_second of operands read from memory, macs_per_second of
// multiply-adds, items_per_second of elements.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "kernels/kernel_table.h"

namespace hearth::micro {

inline constexpr size_t kLargestPiece = size_t{16} << 20;

// A large block of memory whose bytes make sense as codes, scales and floats of every type (they
// are small normal numbers). Read-only, shared by all benchmarks and threads.
class Memory {
 public:
  // `bytes` is at least kLargestPiece for every thread.
  Memory(Budget& budget, size_t bytes);
  std::span<const std::byte> bytes() const { return {buffer_.data(), buffer_.size_bytes()}; }

 private:
  Buffer buffer_;
};

// Walks through a thread's share of memory, a piece at a time, from the start again at its end:
// after one round nothing of a piece is left in caches smaller than the memory.
class Pieces {
 public:
  // piece_bytes is at most kLargestPiece.
  Pieces(const Memory& memory, size_t piece_bytes, const benchmark::State& state);
  const std::byte* Next() {
    const std::byte* piece = at_;
    at_ += piece_bytes_;
    if (at_ == end_) at_ = begin_;
    return piece;
  }
  // What Next will return.
  const std::byte* following() const { return at_; }

 private:
  size_t piece_bytes_;
  const std::byte* begin_;
  const std::byte* end_;
  const std::byte* at_;
};

// n floats between -1 and 1, the same in every run.
std::vector<float> SomeFloats(int64_t n);

void CountMacs(benchmark::State& state, int64_t macs_per_iteration);
void CountBytes(benchmark::State& state, int64_t bytes_per_iteration);
void CountItems(benchmark::State& state, int64_t items_per_iteration);

struct Context {
  const kernels::KernelTable& table;
  const Memory& memory;
  int cpus;
};

enum class BoundBy { kCompute, kMemory };

// Enters ISA/name. What is bound by memory runs on one thread and on all.
void Register(const Context& context, const std::string& name, BoundBy bound,
              std::function<void(benchmark::State&)> run);

// One function per file of this folder, each called once per table.
void RegisterMatMulTiles(const Context& context);
void RegisterMatMulFloat(const Context& context);
void RegisterLowRank(const Context& context);
void RegisterRows(const Context& context);
void RegisterRowBatches(const Context& context);
void RegisterNarrow(const Context& context);
void RegisterRepack(const Context& context);
void RegisterElementwise(const Context& context);
void RegisterAttention(const Context& context);
void RegisterProbes(const Context& context);

}  // namespace hearth::micro
