// What `hearth doctor` prints.
#pragma once

#include <string>

#include "planner/doctor/hardware.h"

namespace hearth::cli {

// The profile as tables for people, warnings last.
std::string HardwareText(const HardwareProfile& profile);

}  // namespace hearth::cli
