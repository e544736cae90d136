#include "measure/probe_memory.h"

#include <fmt/format.h>

#include <cstring>

#include "base/units.h"
#include "ops/probe.h"

namespace hearth {

ProbeMemory::ProbeMemory(Engine& engine) {
  const uint64_t wanted = LeastProbeBytes();
  const std::span<const std::byte> weights = engine.model().memory();
  if (weights.size() >= wanted) {
    bytes_ = weights.first(wanted);
    return;
  }
  const uint64_t used = engine.budget().used_bytes(), limit = engine.budget().limit_bytes();
  if (used + Buffer::ChargedBytes(wanted) > limit) {
    missing_ = fmt::format(
        "measuring it takes {} of memory, several times the caches: {} of weights are too few and "
        "the memory limit leaves {}",
        FormatSize(wanted), FormatSize(weights.size()),
        FormatSize(limit > used ? limit - used : 0));
    return;
  }
  buffer_ = Buffer(engine.budget(), "bandwidth probe", wanted);
  constexpr int64_t kPageBytes = 4096;
  engine.compute().team().ParallelFor(
      static_cast<int64_t>(wanted), kPageBytes, [this](int64_t begin, int64_t end, int) {
        std::memset(buffer_.data() + begin, 1, static_cast<size_t>(end - begin));
      });
  bytes_ = {buffer_.data(), buffer_.size_bytes()};
}

}  // namespace hearth
