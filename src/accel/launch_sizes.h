// What the launches of all kernels have in common. For the sources of accel/ only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "accel/device.h"

namespace hearth::accel {

// Must equal LANES and GROUP of opencl/kernels/common.cl.
inline constexpr size_t kLanes = 32;
inline constexpr size_t kGroup = 64;

// The least multiple of `grain` that is at least n >= 0.
inline size_t RoundedUp(int64_t n, size_t grain) {
  return (static_cast<size_t>(n) + grain - 1) / grain * grain;
}

// Returns n for kernels, which count in 32 bits. Throws Error(kInternal) for a negative number and
// for one that does not fit.
int32_t ToInt(int64_t n);

// Throws Error(kInternal) where `buffer` has no room for rows * columns elements from byte
// `offset` on.
struct Extent {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t element_bytes = 4;
  int64_t offset = 0;
};
void CheckRoom(const DeviceBuffer& buffer, const Extent& extent);

}  // namespace hearth::accel
