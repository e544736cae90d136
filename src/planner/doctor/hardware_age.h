// Whether a profile of this machine may no longer say what it can do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/doctor/hardware.h"

namespace hearth {

// A profile older than this is worth a warning: disks fill and firmware changes.
inline constexpr int64_t kOldProfileSeconds = int64_t{30} * 24 * 3600;

// Why, a clause each: its age at `now_s` (seconds since 1970), another kernel than the one that
// runs, reads that were measured on another file system than `model` (a path) is on. Another
// processor, or other memory, is another machine (CheckIsThisMachine).
std::vector<std::string> StaleReasons(const HardwareProfile& profile, const std::string& model,
                                      int64_t now_s);

}  // namespace hearth
