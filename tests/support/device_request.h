// What tests ask of the device of tests.
#pragma once

#include <cstdint>

#include "accel/test_device.h"
#include "engine/load/device_part.h"

namespace hearth {

inline DeviceRequest TestDeviceRequest(uint64_t memory_bytes) {
  return {.choice = {accel::DeviceChoice::Kind::kIndex, accel::testing::TestDeviceIndex()},
          .memory_bytes = memory_bytes,
          .programs_folder = accel::testing::TestProgramsFolder()};
}

}  // namespace hearth
