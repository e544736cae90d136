// How much memory the machine, or the cgroup around this process, has to give.
#pragma once

#include <cstdint>

namespace hearth {

// Bytes this process may still take: the kernel's estimate of what is available, bounded by the
// limits of the memory cgroups (v1 or v2) that this process is in. At least 0.
uint64_t AvailableMemoryBytes();

// Bytes that the machine has, whatever this process may take of them.
uint64_t TotalMemoryBytes();

// Resident bytes of this process now, and the most it ever had.
uint64_t ResidentBytes();
uint64_t PeakResidentBytes();

// Gives what was freed back to the system, so that ResidentBytes no longer counts it.
void ReturnFreedMemory();

}  // namespace hearth
