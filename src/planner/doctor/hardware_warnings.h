// Warnings about this machine: what of it will slow models down.
#pragma once

#include <string>
#include <vector>

#include "planner/doctor/hardware.h"

namespace hearth {

// A sentence each, without a full stop at the end; the worst first. Reads all of the profile but
// its warnings.
std::vector<std::string> HardwareWarnings(const HardwareProfile& profile);

}  // namespace hearth
