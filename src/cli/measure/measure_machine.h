// Measures this machine for the commands that plan.
#pragma once

#include "planner/doctor/hardware.h"
#include "planner/doctor/hardware_profiler.h"

namespace hearth::cli {

// With a line of progress. Keeps the profile where other commands find it (SavedHardwarePath), or
// says why it cannot. Throws as MeasureHardware does.
HardwareProfile MeasureMachine(ProfilerOptions options);

}  // namespace hearth::cli
