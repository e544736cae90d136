// The picture of what storage gives (P2 Figure 1b).
#pragma once

#include <string>

#include "planner/doctor/hardware.h"

namespace hearth {

// An SVG document: bytes per second (up) over the size of a random read (right), both in
// logarithms: a line per number of reads in flight over the whole file, a dashed one per range.
std::string PlotReads(const HardwareProfile& profile);

}  // namespace hearth
