#include "ops/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at the clock: some ten microseconds, against which a look costs nothing.
constexpr int64_t kRoundsPerLook = 4096;

// What a thread takes at a time: long enough for the streams inside it to get up to speed, short
// enough that all threads end together.
constexpr size_t kPartBytes = size_t{4} << 20;
constexpr size_t kLineBytes = 64;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ProbeResult ProbeInt8(Compute& compute, double seconds) {
  std::atomic<int64_t> done{0};
  const Clock::time_point start = Clock::now();
  compute.team().Run([&](int) {
    do {
      done += compute.kernels().probe_int8(kRoundsPerLook);
    } while (SecondsSince(start) < seconds);
  });
  return {static_cast<double>(done), SecondsSince(start)};
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
