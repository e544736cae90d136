// What `hearth doctor` prints.
#pragma once

#include <optional>
#include <string>

#include "planner/doctor/hardware.h"

namespace hearth::cli {

// The profile as tables for people, warnings last.
std::string HardwareText(const HardwareProfile& profile);

// How fast the processor and a device are by the tokens of a batch, and from how many on weights
// are worth uploading for a prompt (P2 Figure 1a, §4.1.1); lines that begin with `indent`. Weights
// come from storage of so many bytes per second; nothing: from memory. Empty where it was not
// measured.
std::string BatchesText(const DeviceSpeed& device, const std::string& indent,
                        std::optional<double> read_bytes_per_s = {});

}  // namespace hearth::cli
