// What of a machine will hurt whoever runs models on it.
#pragma once

#include <string>
#include <vector>

#include "planner/doctor/hardware.h"

namespace hearth {

// A sentence each, without a full stop at the end; the worst first. Reads all of the profile but
// its warnings.
std::vector<std::string> HardwareWarnings(const HardwareProfile& profile);

}  // namespace hearth
