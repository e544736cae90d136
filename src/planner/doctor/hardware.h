// What a machine can do, measured by `hearth doctor` and used by the planner (P2 §5.2, the
// hardware's rows of Table 2): speeds of its cores, of its memory and of its storage, as spreads,
// because on shared machines they change from minute to minute.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/statistics.h"
#include "ops/tiles/measured_tiles.h"
#include "planner/doctor/device_speed.h"

namespace hearth {

// One logical processor, alone.
struct CoreSpeed {
  int cpu = 0;
  Spread int8_macs_per_s;  // byte products in registers (kernels::KernelTable::probe_int8)
  Spread float_ops_per_s;  // multiplies and adds of float32 in registers, two per fused operation
  Spread look_up_seconds;  // a neuron in the default cache (cache/neuron_cache.h), all calls for it
  bool is_big = true;      // false: clearly slower than the fastest of this machine
};

// What so many threads of the engine do together, each on its own processor. Bytes are of weights
// that lie in memory, several times the caches.
struct ThreadSpeed {
  int threads = 0;
  Spread read_bytes_per_s;    // sequential, nothing computed: the bandwidth of memory
  Spread matrix_bytes_per_s;  // Q4_0 tiles times one token
  Spread dot_bytes_per_s;     // gate and up rows of listed neurons (Q4_0)
  Spread add_bytes_per_s;     // scaled additions of their down rows
  // Both of rows of kNarrowColumns: a row takes time besides that for its bytes.
  Spread narrow_dot_bytes_per_s, narrow_add_bytes_per_s;
  Spread check_bytes_per_s;  // hashing what was read
  Spread prompt_macs_per_s;  // Q4_0 tiles times 128 tokens
  Spread section_seconds;    // a parallel section without work: what a barrier costs
  // Of storage, kBusyQueueDepth reads of kBusyBlockBytes at a time at random places, while these
  // threads read memory as above: what storage delivers has to get into the same memory.
  Spread busy_io_bytes_per_s;
  // The same of kBusyNeuronDepth reads of kBusyNeuronBytes, as single neurons are read.
  Spread busy_neuron_bytes_per_s;
  // Ranges of a file are read in order, and the threads work between one range and the next. This
  // is the share of that work that does not delay the reads. It is below 1 on a disk that reports
  // finished reads late.
  Spread range_share;
};
inline constexpr int64_t kRowColumns = 4096;  // of rows, where nothing else is said
inline constexpr int64_t kNarrowColumns = 512;
inline constexpr uint64_t kBusyBlockBytes = uint64_t{1} << 20;
inline constexpr int kBusyQueueDepth = 8;
inline constexpr uint64_t kBusyNeuronBytes = 7168;  // a bundle of 4096 columns in Q4_0
inline constexpr int kBusyNeuronDepth = 32;
inline constexpr uint64_t kRangeBytes = uint64_t{512} << 10;
inline constexpr int kRangesInFlight = 3;

// Reads of one size at random places.
struct IoSpeed {
  uint64_t block_bytes = 0;
  int queue_depth = 1;
  uint64_t range_bytes = 0;  // that the places are in; 0: the whole file
  int cpu = -1;              // the core that issues them; -1: any
  Spread bytes_per_s;
  Spread cpu_seconds_per_read;  // of processor time, all threads together
  // From submitting queue_depth reads together until the last of them is there: the slowest counts.
  Spread batch_seconds;
};

struct StorageProfile {
  std::string directory;  // where it was measured; or the file that was read
  uint64_t file_bytes = 0;
  std::string backend;  // AsyncFile::backend()
  std::string note;     // AsyncFile::note()
  bool is_direct = false;
  bool is_in_memory = false;  // a file system without a device behind it (tmpfs)
  uint32_t alignment_bytes = 0;
  std::vector<IoSpeed> reads;
};

struct HardwareProfile {
  int64_t measured_at_s = 0;  // since 1970
  int rounds = 0;             // that every spread is of
  std::string cpu_model;
  std::string system;    // the kernel's name and release
  std::string isa;       // of the kernels
  int cpus = 0;          // that this process may use
  int machine_cpus = 0;  // that the machine has, whoever may use them
  uint64_t memory_bytes = 0;
  uint64_t available_memory_bytes = 0;        // before it was measured
  uint64_t probe_memory_bytes = 0;            // that the speeds of memory are of
  double load_average = 0;                    // of the last minute, before it was measured
  std::optional<uint64_t> mlock_limit_bytes;  // nothing: no limit
  bool has_io_uring = false;
  std::vector<std::string> accelerators;  // device names; empty: none
  // The devices that OpenCL knows; processors among them were not measured.
  std::vector<DeviceSpeed> devices;
  // The fastest geometries of products with tiles, by number of tokens, ascending; empty where
  // kernels have one only.
  std::vector<MeasuredTiles> tiles;
  std::vector<CoreSpeed> cores;
  std::vector<ThreadSpeed>
      threads;  // by number, ascending; every number from 1 to cpus, or powers of 2
  StorageProfile storage;
  std::vector<std::string> warnings;  // what will hurt, a sentence each

  // hearth::MachineHash of it; plans carry it.
  std::string MachineHash() const;

  // The row for so many threads; the nearest measured number where it is not there.
  const ThreadSpeed& ForThreads(int threads) const;
  // Medians for reads of the whole file from any core. Sizes between two measured ones are
  // interpolated on logarithmic axes. Depths are too for rates; times are those of the nearest
  // measured depth. A read below the smallest measured size takes as long as one of that size;
  // above the largest, time grows in proportion to bytes.
  double IoBytesPerSecond(uint64_t block_bytes, int queue_depth) const;
  double IoCpuSecondsPerRead(uint64_t block_bytes, int queue_depth) const;
  // Of so many reads that are submitted together.
  double IoBatchSeconds(uint64_t block_bytes, int queue_depth) const;
  // How many times as fast reads are that stay in `range_bytes` of a file, by the smallest measured
  // range that holds them; 1 where none does, or where the rounds do not tell the two apart.
  double IoRangeGain(uint64_t block_bytes, uint64_t range_bytes) const;
  // What share of its speed storage keeps while so many threads take memory in; at most 1. No more
  // than beside more threads, unless the rounds tell the two apart.
  double BusyIoShare(int threads) const;      // of large blocks
  double BusyNeuronShare(int threads) const;  // of single neurons
  // Of the median of a big core.
  double LookUpSeconds() const;
  // Multiply-adds of float32 in registers by these processors together.
  double FloatMacsPerSecond(std::span<const int> processors) const;

  // How fast a processor is, as a share of the fastest: a big one counts 1, because rounds do not
  // tell big ones apart, and so does one that was not measured.
  double CoreShare(int cpu) const;
  // `count` of the allowed processors, or all: the fastest, of equal ones the first. Ascending.
  std::vector<int> FastestCores(std::span<const int> allowed, int count) const;
  // The one of these processors whose small reads are fastest; the first where none was clearly
  // faster.
  int FastestReader(std::span<const int> processors) const;
  // What one thread on each of these processors would do together. ForThreads is of the first
  // processors: where those are faster or slower than these, what is computed takes as much more or
  // less time (P2 equation 9, which adds up the speeds of cores), but no less than memory needs to
  // deliver it. Work is shared out as threads ask for it, so that no slow one holds the others up.
  ThreadSpeed ForCores(std::span<const int> processors) const;
};

// A core is little where it is slower than this share of the fastest.
inline constexpr double kBigCoreShare = 0.75;

// How fast weights are read for uploads: in order, several pieces at a time.
double UploadReadRate(const HardwareProfile& profile);

// docs/formats/hardware.md and its schema.
nlohmann::ordered_json HardwareJson(const HardwareProfile& profile);
// Throws Error(kCorrupt), with the file's name, for what is not a profile or has absurd values.
HardwareProfile HardwareFromJson(const nlohmann::json& document, const std::string& file);
HardwareProfile ReadHardware(const std::string& path);
// Throws Error(kInvalidArgument) where the profile is of another machine than this one.
void CheckIsThisMachine(const HardwareProfile& profile, const std::string& file);

}  // namespace hearth
