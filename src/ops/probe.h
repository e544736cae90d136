// What this machine can do at best, measured with the kernels and the threads that a model runs
// on: the yardsticks that `bench` holds speeds against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/compute.h"

namespace hearth {

struct ProbeResult {
  double amount = 0;  // multiply-adds, or bytes
  double seconds = 0;
  double PerSecond() const { return seconds > 0 ? amount / seconds : 0; }
};

// Byte products in registers alone, on every thread that gets to run, for about `seconds`.
ProbeResult ProbeInt8(Compute& compute, double seconds);

// Multiplies and adds of float32 in registers alone, two per fused operation, likewise.
ProbeResult ProbeFloat(Compute& compute, double seconds);

// Memory that ProbeRead should read at least, so that at most a quarter of what is read again could
// still be in a cache: four times the largest cache, and not less than 256 MiB.
uint64_t LeastProbeBytes();

// Reads all of `memory` once (but for a last piece under 64 bytes), each thread its own parts. To
// be memory's speed and not a cache's, `memory` must be several times as large as the caches and
// must have been written: untouched pages are all one page of zeros.
ProbeResult ProbeRead(Compute& compute, std::span<const std::byte> memory);

}  // namespace hearth
