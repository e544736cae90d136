// A device that is not here, as the simulator sees it: cores, memory, flash
// (docs/formats/schemas/device.schema.json, docs/simulator.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/device_profile.h"

namespace hearth {

// Cores of one kind.
struct SimCores {
  std::string kind;         // "big", "mid", ...
  int count = 0;            // of the device
  double macs_per_s = 0;    // of one core: 4-bit weights times 8-bit activations
  double read_seconds = 0;  // that a read takes longer when such a core issues it
};

struct SimDevice {
  std::string name;
  std::vector<SimCores> cores;
  double memory_bytes_per_s = 0;
  // How much longer a weight takes that is gathered, neuron by neuron, than one of a whole matrix.
  double gathered_cost = 1;
  uint64_t memory_bytes = 0;              // that one program can use
  DeviceProfile flash;                    // its core_seconds are those of `cores`, in order
  std::vector<int> compute;               // how many of each kind compute, as `cores`
  int io_kind = 0;                        // of the one core that issues reads, as `cores`
  uint64_t mmap_block_bytes = 128 << 10;  // that one page fault of a mapped file reads
  // At which the system takes in pages of a mapped file, and gives up others for them; 0: as fast
  // as flash reads.
  double mmap_bytes_per_s = 0;

  int num_compute_cores() const;
  double compute_macs_per_s() const;  // of all that compute
};

// OnePlus 12: P2 §2.3, Tables 1 and 3. What the paper does not give is named as
// free where it is set, and in docs/simulator.md.
SimDevice OnePlus12();

// The names of built-in devices.
std::vector<std::string> SimDeviceNames();

// A device from a JSON object; `file_name` is for messages. Throws Error(kInvalidArgument), naming
// file and field, for anything that is no device.
SimDevice ParseSimDevice(std::string_view json, const std::string& file_name);

// What --device means: a built-in name, else a file. Throws as above, and Error(kNotFound) or
// Error(kIo).
SimDevice ResolveSimDevice(const std::string& name_or_path);

// The JSON of a device; ParseSimDevice reads it back.
std::string SimDeviceJson(const SimDevice& device);

// Throws Error(kInvalidArgument), naming `where` and the field.
void CheckSimDevice(const SimDevice& device, const std::string& where);

}  // namespace hearth
