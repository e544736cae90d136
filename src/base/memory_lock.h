// Keeping what a process has in memory from being swapped out.
#pragma once

#include <cstdint>
#include <string>

namespace hearth {

// Locks all memory that the process has mapped: each page stays from its first use until the
// process ends. Memory that is mapped later is not locked. Returns "", or why the system refuses,
// with the limit (ulimit -l) where that is the reason. Thread-safe.
std::string LockMemory();

// Returns the bytes of address space that are locked.
uint64_t LockedBytes();

}  // namespace hearth
