#include "ops/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/cpu.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at the clock: ten to a hundred microseconds, to which a look adds nothing.
constexpr int64_t kRoundsPerLook = 4096;

// What a thread takes at a time: long enough for the streams inside it to get up to speed, short
// enough that all threads end together.
constexpr size_t kPartBytes = size_t{4} << 20;
constexpr size_t kLineBytes = 64;

constexpr uint64_t kCacheMultiple = 4;
constexpr uint64_t kLeastProbeBytes = uint64_t{256} << 20;
// Where the system does not tell its caches: enough for all that are known.
constexpr uint64_t kUnknownCacheBytes = uint64_t{512} << 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls `probe` on every thread that gets to run, for about `seconds`.
ProbeResult ProbeRegisters(Compute& compute, int64_t (*probe)(int64_t rounds) noexcept,
                           double seconds) {
  std::atomic<int64_t> done{0};
  const Clock::time_point start = Clock::now();
  compute.team().Run([&](int) {
    do {
      done += probe(kRoundsPerLook);
    } while (SecondsSince(start) < seconds);
  });
  return {static_cast<double>(done), SecondsSince(start)};
}

}  // namespace

ProbeResult ProbeInt8(Compute& compute, double seconds) {
  return ProbeRegisters(compute, compute.kernels().probe_int8, seconds);
}

ProbeResult ProbeFloat(Compute& compute, double seconds) {
  return ProbeRegisters(compute, compute.kernels().probe_float, seconds);
}

uint64_t LeastProbeBytes() {
  const uint64_t cache = LastLevelCacheBytes();
  return std::max(kLeastProbeBytes, kCacheMultiple * (cache > 0 ? cache : kUnknownCacheBytes));
}

ProbeResult ProbeRead(Compute& compute, std::span<const std::byte> memory) {
  const size_t bytes = memory.size() / kLineBytes * kLineBytes;
  std::atomic<size_t> next{0};
  const Clock::time_point start = Clock::now();
  compute.team().Run([&](int) {
    for (size_t begin = next.fetch_add(kPartBytes); begin < bytes;
         begin = next.fetch_add(kPartBytes)) {
      const size_t part = std::min(kPartBytes, bytes - begin);
      compute.kernels().probe_read(memory.data() + begin, static_cast<int64_t>(part));
    }
  });
  return {static_cast<double>(bytes), SecondsSince(start)};
}

}  // namespace hearth
