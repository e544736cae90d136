// Measures a machine (P2 §5.2, "hardware profiler"): what `hearth doctor` does.
//
// Speeds of shared machines change within a minute, so nothing is measured once: all quantities are
// measured in turn, round after round, and each is kept as a spread. What disturbs a round disturbs
// all quantities alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "planner/doctor/hardware.h"

namespace hearth {

// How much is measured, and for how long.
struct ProfilerEffort {
  int rounds = 7;
  // No round begins that would end after this, but for the first.
  double total_seconds = 50;
  double core_seconds = 0.03;    // a register probe of one core; less where there are many cores
  double thread_seconds = 0.08;  // one speed of a number of threads
  double read_seconds = 0.06;    // one kind of read
  double write_seconds = 15;     // at most, for the scratch file
  // 0: enough to be no cache's speed, and at least 1 GiB. Bounded by a quarter of free memory.
  uint64_t memory_bytes = 0;
  uint64_t file_bytes = uint64_t{1} << 30;
  // What is multiplied: FFNs of a 7B model.
  int64_t hidden_size = 4096;
  int64_t ffn_neurons = 11008;
  int64_t prompt_tokens = 128;
};

// A few seconds instead of half a minute: fewer rounds, less memory, a smaller file, so that caches
// of the machine and of its disk may show.
ProfilerEffort QuickEffort();

// The smallest file that says anything.
inline constexpr uint64_t kLeastProbeFileBytes = uint64_t{8} << 20;

struct ProfilerOptions {
  std::string directory = ".";  // where the scratch file is written; it is gone afterwards
  std::string file;             // where not empty: read this one instead, and write nothing
  std::string programs;         // a folder that keeps the programs of devices; empty: nowhere
  // A device, by its number in accel::ListDevices, that is measured though it is a processor.
  std::optional<size_t> device;
  ProfilerEffort effort;
};

// Called with the share that is done and what is being measured.
using ProfilerProgressFn = std::function<void(double done, const std::string& what)>;

// Throws Error(kIo) where the disk has no room for the scratch file or a read fails,
// Error(kNotFound) where there is no such folder or file, Error(kInvalidArgument) for a file under
// kLeastProbeFileBytes or effort that makes no sense.
HardwareProfile MeasureHardware(const ProfilerOptions& options,
                                const ProfilerProgressFn& progress = {});

}  // namespace hearth
