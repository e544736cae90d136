// How much memory the machine, or the cgroup around this process, has to give.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace hearth {

// Bytes this process may still take: the kernel's estimate of what is available, bounded by the
// limits of the memory cgroups (v1 or v2) that this process is in. At least 0.
uint64_t AvailableMemoryBytes();

// What may still be charged to the group of a directory, page cache that it would give up included;
// nothing where it has no limit.
std::optional<uint64_t> CgroupHeadroomBytes(const std::string& directory, bool is_v2);

// The most that this process could ever have: the machine's memory, or what the groups around it
// are limited to. The system kills a process that takes more.
uint64_t MemoryLimitBytes();

// A memory limit for those who give none: what is resident and available now, less a margin for the
// rest of the machine.
uint64_t DefaultMemoryBytes();

// Bytes that the machine has, whatever this process may take of them.
uint64_t TotalMemoryBytes();

// Resident bytes of this process now, and the most it ever had.
uint64_t ResidentBytes();
uint64_t PeakResidentBytes();

// What this process takes beside what it charges by name: the memory that only it has now, the code
// and constants of files that it has mapped, and an allowance for those that it has yet to use.
// A memory cgroup also counts what the system read of those files and nobody uses, until it needs
// the room. Gives freed memory back to the system before it counts: an allocator may keep many
// megabytes of an earlier model.
uint64_t ProgramBytes();

// Bytes that the allocator has handed out, to all threads; 0 where it does not tell.
uint64_t HeapBytes();

// Gives what was freed back to the system, so that ResidentBytes no longer counts it.
void ReturnFreedMemory();

}  // namespace hearth
