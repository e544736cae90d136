// A file served from memory in the time that another storage device would take, so that the device
// may also be faster than the disk that the file lies on.
#pragma once

#include <memory>
#include <string>

#include "storage/async/async_reader.h"
#include "storage/clock.h"
#include "storage/device_profile.h"

namespace hearth {

struct EmulatedDevice {
  DeviceProfile flash;
  int core = 0;  // kind of the core that issues reads, an index of flash.core_seconds
  const Clock* clock = nullptr;  // as in ThrottleOptions
};

// Loads all of the file into memory of its own, which no budget counts: it stands for the device.
// Reads are as direct ones of 512 bytes; backend() is "emulated" and the profile's name. Throws
// Error(kNotFound), Error(kIo) as OpenFileReader does, Error(kOutOfBudget) where less memory is
// free than the file takes, Error(kInvalidArgument) for a profile that contradicts itself.
std::unique_ptr<AsyncFile> OpenEmulatedFile(const std::string& path, const EmulatedDevice& device);

}  // namespace hearth
