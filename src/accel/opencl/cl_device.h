// A Device of the system's OpenCL library.
#pragma once

#include <memory>
#include <string>

#include "accel/devices.h"
#include "accel/opencl/functions.h"

namespace hearth::accel {

// What the driver says of a device. Throws Error(kIo).
DeviceInfo ReadDeviceInfo(const ClFunctions& cl, cl_platform_id platform, cl_device_id device);

// Opens a device. `cl` must outlive it. Throws Error(kIo).
std::unique_ptr<Device> OpenClDevice(const ClFunctions& cl, cl_device_id device, DeviceInfo info,
                                     const DeviceOptions& options);

}  // namespace hearth::accel
