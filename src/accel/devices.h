// Which devices there are, and which one a command uses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accel/device.h"

namespace hearth::accel {

// Numbered from 0, in the order in which the system names them.
struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string why_none;  // one sentence without a full stop where the list is empty
};

// Loads the system's OpenCL library at the first call. A machine without it has an empty list.
// Throws Error(kIo) where a driver fails. Thread-safe.
DeviceList ListDevices();

// What a user asks for: a device by its number, any, or none.
struct DeviceChoice {
  enum class Kind { kAuto, kNone, kIndex };
  Kind kind = Kind::kNone;
  size_t index = 0;  // kIndex only
};

// Parses "auto", "none" or a number. Throws Error(kInvalidArgument).
DeviceChoice ParseDeviceChoice(std::string_view text);

// Returns the number of the device that a choice means, or nothing. kAuto means the first device
// that is no processor: the engine's own threads compute faster there. Throws Error(kNotFound),
// naming the numbers there are, where there is no device of that number.
std::optional<size_t> ChooseDevice(const DeviceChoice& choice, const DeviceList& list);

struct DeviceOptions {
  // What all buffers may take; a larger number than the device's memory means that memory.
  uint64_t memory_bytes = Budget::kUnlimited;
  // The folder that keeps built programs, made when it is needed; empty: nothing is kept.
  std::string cache_folder;
};

// Where a user's programs keep those of devices: $XDG_CACHE_HOME/hearth/opencl, or
// ~/.cache/hearth/opencl; empty where the environment names neither. Need not exist.
std::string UsersProgramsFolder();

// Opens the device of this number in ListDevices. Throws Error(kNotFound) where there is none, and
// Error(kIo) where its driver fails.
std::unique_ptr<Device> OpenDevice(size_t index, const DeviceOptions& options);

}  // namespace hearth::accel
