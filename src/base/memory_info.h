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

// What a memory cgroup may charge for this process as it is now: what it has for itself, and all
// code and constants of the program and its libraries, mapped or not yet: the page cache of whoever
// read them first has them as a whole, since the system reads ahead. First gives back what was
// freed: an allocator may keep many megabytes of an earlier model, or of whatever else the program
// does.
uint64_t ProgramBytes();

// Gives what was freed back to the system, so that ResidentBytes no longer counts it.
void ReturnFreedMemory();

}  // namespace hearth
