// How long threads wait for a processor that other programs hold.
#pragma once

#include <optional>

namespace hearth {

// Returns how many seconds the calling thread has been ready to run without running since it began
// (second field of /proc/thread-self/schedstat, proc(5)), or nullopt where the system does not say.
// Takes a few microseconds.
std::optional<double> ThreadRunDelaySeconds();

}  // namespace hearth
