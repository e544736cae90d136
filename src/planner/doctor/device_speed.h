// What a device beside the processor can do, for placing neurons on it (P1 §6.3): its limits, and
// speeds as spreads of some rounds.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accel/device.h"
#include "measure/statistics.h"
#include "plan/json_object.h"
#include "planner/doctor/batch_speed.h"

namespace hearth {

// The rates of accel::DeviceRates, each over some rounds.
struct DeviceRateSpreads {
  Spread read_bytes_per_s;
  Spread matvec_bytes_per_s;
  Spread matmul_macs_per_s;
  Spread upload_bytes_per_s;
  Spread download_bytes_per_s;
  Spread launch_seconds;
};

struct DeviceSpeed {
  size_t index = 0;  // in accel::ListDevices
  accel::DeviceInfo info;
  std::optional<DeviceRateSpreads> rates;  // nothing: not measured
  std::vector<BatchSpeed> batches;         // beside the processor; empty: not measured
};

struct DeviceEffort {
  int rounds = 5;
  double seconds = 0.05;  // for each rate of a round
  uint64_t bytes = uint64_t{128} << 20;
};

// Measures the device of this number in accel::ListDevices. `cache_folder` keeps its programs.
// Throws what accel::OpenDevice and accel::DeviceProbe do.
DeviceRateSpreads MeasureDevice(size_t index, const DeviceEffort& effort,
                                const std::string& cache_folder);

// An entry of `devices` (docs/formats/hardware.md).
nlohmann::ordered_json DeviceSpeedJson(const DeviceSpeed& device);
// Throws as JsonObject does.
DeviceSpeed ReadDeviceSpeed(JsonObject& fields);

}  // namespace hearth
