// How far other programs hold the processors.
#pragma once

#include <optional>

namespace hearth {

// How long the calling thread has been ready to run without running, in seconds, since it began
// (the second field of proc(5)'s schedstat). Nothing where the system does not say. Takes some
// microseconds.
std::optional<double> ThreadRunDelaySeconds();

}  // namespace hearth
