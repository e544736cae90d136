// Machines with a device that are not here, by what their makers print of them: for plans and
// replays in virtual time (hybrid_replay.h; docs/emulator.md has every number's source).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/device_profile.h"

namespace hearth {

// Rates are those of data sheets, which no program reaches; multiply-adds are of floats.
struct EmulatedMachine {
  std::string name;

  // The device.
  uint64_t device_bytes = 0;
  double device_bytes_per_s = 0;
  double device_macs_per_s = 0;
  double launch_seconds = 0;  // of one kernel
  // Between host and device, in either direction.
  double link_bytes_per_s = 0;
  double link_seconds = 0;  // what starting one transfer takes, beside its bytes

  // The host.
  uint64_t host_bytes = 0;
  double host_bytes_per_s = 0;
  double host_macs_per_s = 0;
  DeviceProfile flash;
};

// "rtx-4090", "rtx-2080ti", "adreno-750".
std::vector<std::string> EmulatedMachineNames();

// Throws Error(kNotFound), naming those that there are.
EmulatedMachine FindEmulatedMachine(std::string_view name);

}  // namespace hearth
