// How fast a storage device serves reads, as plain data, and the time that one read takes on it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace hearth {

// A measured point of a curve. Between two points, curves are straight lines in logarithms of both
// axes. Past its last point a curve stays level. A read smaller than a curve's first block takes
// as long as one of that block.
struct ThroughputPoint {
  uint64_t at_bytes = 0;        // block size, or range of random reads
  double bytes_per_second = 0;  // more than 0
};

// What cannot be said by a curve is 0 or empty. Rates are those of the fastest core, issuing alone,
// with enough reads in flight.
struct DeviceProfile {
  std::string name;
  // By block size, ascending; not empty. A sequential read begins where one of the last
  // window_reads ended; all others are random.
  std::vector<ThroughputPoint> random;
  std::vector<ThroughputPoint> sequential;  // empty: as random
  // Random reads of blocks up to range_block_bytes whose last window_reads lie in a smaller range
  // are served at these rates, by range, ascending.
  std::vector<ThroughputPoint> random_in_range;
  uint64_t range_block_bytes = 0;
  double max_reads_per_second = 0;   // 0: no limit but the curves
  double max_bytes_per_second = 0;   // 0: no limit but the curves
  double latency_seconds = 0;        // of every read, while the device serves others
  double latency_per_byte = 0;       // seconds, likewise
  int command_queues = 1;            // reads served at a time, each at its share of the rates
  std::vector<double> core_seconds;  // extra time per read, by kind of issuing core
  // Extra time per read while 1, 2, ... queues issue; the last entry stands for more.
  std::vector<double> contention_seconds;
  int window_reads = 32;  // how many reads back "issue" and "range" look; from 1 to 64
};

// The kinds of core of Ufs40().
enum class PhoneCore { kBig, kMid, kLittle };

// UFS 4.0 of a Snapdragon 8 Gen 3, from P2 §2.3 and Table 1. What the paper does
// not give is marked as free where it is set (device_profile.cc).
DeviceProfile Ufs40();

// Throws Error(kInvalidArgument) for a profile that contradicts itself.
void CheckProfile(const DeviceProfile& profile);

// The time that a device takes. Deterministic: the same reads at the same times end at the same
// times. Not thread-safe.
class DeviceModel {
 public:
  // `profile` has passed CheckProfile.
  explicit DeviceModel(DeviceProfile profile);

  static constexpr int kMaxWindow = 64;

  struct Read {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    int queue = 0;  // who issues it: any number
    int core = 0;   // kind of core, an index of core_seconds; more: the last
  };

  // A read is issued at `now_ns`; returns when it is done. Reads are served in the order of calls.
  int64_t Serve(const Read& read, int64_t now_ns) noexcept;

 private:
  double RandomSeconds(uint64_t bytes) const noexcept;
  double ContentionSeconds() const noexcept;
  size_t WindowSize() const noexcept;  // how many entries of window_ count

  const DeviceProfile profile_;
  std::vector<int64_t> free_at_ns_;  // by command queue
  std::array<Read, kMaxWindow> window_ = {};
  uint64_t served_ = 0;
};

}  // namespace hearth
