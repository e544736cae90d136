// A machine that computes in no time and reads as a device profile says. For tests in virtual time,
// which stands still while anything is computed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "planner/doctor/test_hardware.h"
#include "storage/device_profile.h"

namespace hearth::testing {

// From submitting so many reads at random places of a range to the last of them, as `hearth doctor`
// measures it: after others of their kind.
inline double EmulatedBatchSeconds(DeviceModel device, uint64_t bytes, int depth,
                                   uint64_t range_bytes) {
  constexpr int kPlaces = 64, kReadsBefore = 64;
  const auto offset = [&](int i) {
    return range_bytes / kPlaces * static_cast<uint64_t>(7 * i % kPlaces);
  };
  int64_t begin_ns = 0, last_ns = 0;
  for (int i = 0; i < kReadsBefore; ++i) {
    begin_ns = std::max(begin_ns, device.Serve({offset(i), bytes, 0, 0}, 0));
  }
  for (int i = 0; i < depth; ++i) {
    last_ns = std::max(last_ns, device.Serve({offset(i), bytes, 0, 0}, begin_ns));
  }
  return static_cast<double>(last_ns - begin_ns) * 1e-9;
}

inline HardwareProfile ComputesInNoTime(const DeviceProfile& flash) {
  constexpr uint64_t kFile = uint64_t{64} << 30, kRange = uint64_t{128} << 20;
  HardwareProfile hardware = SampleHardware();
  for (ThreadSpeed& speed : hardware.threads) {
    for (Spread ThreadSpeed::*rate :
         {&ThreadSpeed::read_bytes_per_s, &ThreadSpeed::matrix_bytes_per_s,
          &ThreadSpeed::dot_bytes_per_s, &ThreadSpeed::add_bytes_per_s,
          &ThreadSpeed::narrow_dot_bytes_per_s, &ThreadSpeed::narrow_add_bytes_per_s,
          &ThreadSpeed::check_bytes_per_s, &ThreadSpeed::prompt_macs_per_s,
          &ThreadSpeed::busy_io_bytes_per_s, &ThreadSpeed::busy_neuron_bytes_per_s}) {
      (speed.*rate).median = 1e18;
    }
    speed.section_seconds.median = 1e-18;
    speed.range_share.median = 1;
  }
  for (CoreSpeed& core : hardware.cores) core.look_up_seconds.median = 1e-18;
  hardware.storage.reads.clear();
  for (const uint64_t block : {512, 1024, 2048, 4096, 8192, 16384, 65536, 1 << 20}) {
    for (const int depth : {1, 8, 32}) {
      for (const uint64_t range : {uint64_t{0}, kRange}) {
        const double seconds =
            EmulatedBatchSeconds(DeviceModel(flash), block, depth, range == 0 ? kFile : range);
        hardware.storage.reads.push_back(
            {block, depth, range, -1, SpreadAround(static_cast<double>(block) * depth / seconds),
             SpreadAround(1e-12), SpreadAround(seconds)});
      }
    }
  }
  return hardware;
}

}  // namespace hearth::testing
