// Keeping what a process has in memory from being swapped out.
#pragma once

#include <cstdint>
#include <string>

namespace hearth {

// Locks all memory that the process has by now: pages stay from when they are touched on, until the
// process ends. Memory that it takes later is not locked. Returns why the system refuses, naming
// the limit (ulimit -l); empty where it does not. Any thread.
std::string LockMemory();

// Of what is locked, the addresses: 0 where nothing is.
uint64_t LockedBytes();

}  // namespace hearth
