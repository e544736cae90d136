// A small hardware profile for tests.
#pragma once

#include "planner/doctor/hardware.h"
#include "planner/doctor/hardware_machine.h"

namespace hearth::testing {

inline Spread SpreadAround(double median) { return {median, 0.9 * median, 1.2 * median}; }

// Of this machine, with made-up speeds: 1 and 2 threads, reads of 4 KiB to 1 MiB.
inline HardwareProfile SampleHardware() {
  HardwareProfile profile;
  DescribeMachine(profile);
  profile.measured_at_s = 1700000000;
  profile.rounds = 5;
  profile.probe_memory_bytes = uint64_t{1} << 30;
  profile.mlock_limit_bytes = uint64_t{64} << 20;
  profile.accelerators = {"NVIDIA H100"};
  DeviceSpeed device = {0, {}, DeviceRateSpreads{}};
  device.info.name = "H100";
  device.info.memory_bytes = uint64_t{80} << 30;
  device.rates->read_bytes_per_s = SpreadAround(2e12);
  device.rates->matvec_bytes_per_s = SpreadAround(1e12);
  device.rates->matmul_macs_per_s = SpreadAround(1e13);
  device.rates->upload_bytes_per_s = SpreadAround(2e10);
  device.rates->download_bytes_per_s = SpreadAround(2.1e10);
  device.rates->launch_seconds = SpreadAround(1e-5);
  device.batches = {{1, 3e10, 1e12}, {16, 1e11, 5e12}, {256, 1.5e11, 1e13}};
  profile.devices = {device, {1, device.info, std::nullopt, {}}};
  profile.tiles = {{{1, {1, 1, false}}, 5e-6, 5e-6}, {{24, {2, 1, true}}, 4e-5, 4.4e-5}};
  profile.cores = {{0, SpreadAround(2e11), SpreadAround(1e11), SpreadAround(3e-8), true},
                   {1, SpreadAround(5e10), SpreadAround(3e10), SpreadAround(9e-8), false}};
  for (const int threads : {1, 2}) {
    const double speed = 1e10 * threads;
    profile.threads.push_back(
        {threads, SpreadAround(speed), SpreadAround(0.9 * speed), SpreadAround(0.8 * speed),
         SpreadAround(0.7 * speed), SpreadAround(0.8 * speed), SpreadAround(0.7 * speed),
         SpreadAround(0.6 * speed), SpreadAround(20 * speed), SpreadAround(1e-6 * threads),
         SpreadAround(2e8 / threads), SpreadAround(1e6 / threads), SpreadAround(0.8)});
  }
  StorageProfile& storage = profile.storage;
  storage = {"/somewhere", uint64_t{1} << 30, "io_uring", "", true, false, 512, {}};
  for (const uint64_t block : {4096, 65536, 1 << 20}) {
    for (const int depth : {1, 32}) {
      const double bytes_per_s = 1e5 * depth * static_cast<double>(block) / 4096;
      storage.reads.push_back({block, depth, 0, -1, SpreadAround(bytes_per_s), SpreadAround(3e-6),
                               SpreadAround(depth * static_cast<double>(block) / bytes_per_s)});
    }
  }
  storage.reads.push_back(
      {4096, 32, 128 << 20, -1, SpreadAround(4e6), SpreadAround(2e-6), SpreadAround(1e-4)});
  storage.reads.push_back(
      {4096, 32, 0, 1, SpreadAround(8e9), SpreadAround(5e-6), SpreadAround(1e-4)});
  profile.warnings = {"the disk is slow", "so is the rest"};
  return profile;
}

}  // namespace hearth::testing
