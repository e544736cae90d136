#include "storage/device_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr double kMegabyte = 1e6;  // the paper's MB/s, taken as decimal

// Seconds of one 4 KB read at a rate that the paper prints.
constexpr double SecondsOf4k(double megabytes_per_second) {
  return 4096.0 / (megabytes_per_second * kMegabyte);
}

// The curve's value at x > 0, which is not below its first point.
double RateAt(const std::vector<ThroughputPoint>& curve, double x) {
  size_t i = 1;
  while (i < curve.size() && static_cast<double>(curve[i].at_bytes) < x) ++i;
  if (i == curve.size()) return curve.back().bytes_per_second;
  const ThroughputPoint& low = curve[i - 1];
  const ThroughputPoint& high = curve[i];
  const double low_x = std::log(static_cast<double>(low.at_bytes));
  const double high_x = std::log(static_cast<double>(high.at_bytes));
  const double share = (std::log(x) - low_x) / (high_x - low_x);
  return low.bytes_per_second * std::pow(high.bytes_per_second / low.bytes_per_second, share);
}

double SecondsByBlock(const std::vector<ThroughputPoint>& curve, uint64_t bytes) {
  const auto block = static_cast<double>(std::max(bytes, curve.front().at_bytes));
  return block / RateAt(curve, block);
}

[[noreturn]] void ThrowProfile(const DeviceProfile& profile, const char* what, const char* expected,
                               double found) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("device profile \"{}\"", profile.name), what,
              expected, fmt::format("{}", found));
}

void CheckCurve(const DeviceProfile& profile, const std::vector<ThroughputPoint>& curve,
                const char* name) {
  uint64_t last = 0;
  for (const ThroughputPoint& point : curve) {
    if (point.at_bytes <= last) {
      ThrowProfile(profile, name, "points in ascending order", static_cast<double>(point.at_bytes));
    }
    if (!(point.bytes_per_second > 0) || !std::isfinite(point.bytes_per_second)) {
      ThrowProfile(profile, name, "rates above 0", point.bytes_per_second);
    }
    last = point.at_bytes;
  }
}

void CheckNotNegative(const DeviceProfile& profile, const char* name, double value) {
  if (!(value >= 0) || !std::isfinite(value)) ThrowProfile(profile, name, "at least 0", value);
}

}  // namespace

DeviceProfile Ufs40() {
  constexpr double kBig = SecondsOf4k(1076.10);    // Table 1: 1 big-core
  constexpr double kMid = SecondsOf4k(1007.95);    // Table 1: 1 mid-core
  constexpr double kLittle = SecondsOf4k(761.87);  // Table 1: 1 little-core
  constexpr double kTwo = SecondsOf4k(802.42);     // Table 1: 1 big-core + 1 mid-core
  constexpr double kFour = SecondsOf4k(613.74);    // Table 1: 1 big-core + 3 mid-cores
  constexpr double kContentionOfTwo = kTwo - (kBig + kMid) / 2;
  constexpr double kContentionOfFour = kFour - (kBig + 3 * kMid) / 4;

  DeviceProfile ufs;
  ufs.name = "UFS 4.0";
  ufs.random = {{4 * kKiB, 450 * kMegabyte},          // 2.3.1: 4 KB random
                {512 * kKiB, 3500 * kMegabyte}};      // 2.3.1: 512 KB random, the maximum
  ufs.sequential = {{4 * kKiB, 1076.10 * kMegabyte},  // free: as in the smallest range (Table 1)
                    {512 * kKiB, 4000 * kMegabyte}};  // 2.3.1: 512 KB sequential, the maximum
  ufs.random_in_range = {
      {128 * kMiB, 1076.10 * kMegabyte},  // Table 1; 2.3.2 says 1 GB/s
      {512 * kMiB, 850 * kMegabyte},      // 2.3.2: below 850 MB/s
      // 2.3.1's 450 MB/s; free: the range, where the line through the two points above gets there.
      {21 * kKiB * kMiB, 450 * kMegabyte}};
  ufs.range_block_bytes = 4 * kKiB;                     // 2.3.2: not as apparent with other sizes
  ufs.command_queues = 1;                               // 2.3.4
  ufs.core_seconds = {0, kMid - kBig, kLittle - kBig};  // 2.3.3: the core runs the driver
  // 2.3.4: contention in the command queue. Free: three issuing cores, halfway.
  ufs.contention_seconds = {0, kContentionOfTwo, (kContentionOfTwo + kContentionOfFour) / 2,
                            kContentionOfFour};
  ufs.latency_seconds = 0;  // free: the paper gives none
  ufs.window_reads = 32;    // free
  return ufs;
}

void CheckProfile(const DeviceProfile& profile) {
  if (profile.random.empty()) ThrowProfile(profile, "random reads", "at least one point", 0);
  CheckCurve(profile, profile.random, "random reads");
  CheckCurve(profile, profile.sequential, "sequential reads");
  CheckCurve(profile, profile.random_in_range, "random reads in a range");
  CheckNotNegative(profile, "reads per second", profile.max_reads_per_second);
  CheckNotNegative(profile, "bytes per second", profile.max_bytes_per_second);
  CheckNotNegative(profile, "latency", profile.latency_seconds);
  CheckNotNegative(profile, "latency per byte", profile.latency_per_byte);
  for (const double seconds : profile.core_seconds) {
    CheckNotNegative(profile, "extra time of a core", seconds);
  }
  for (const double seconds : profile.contention_seconds) {
    CheckNotNegative(profile, "extra time of contention", seconds);
  }
  if (profile.command_queues < 1 || profile.command_queues > 1024) {
    ThrowProfile(profile, "command queues", "1 to 1024", profile.command_queues);
  }
  if (profile.window_reads < 1 || profile.window_reads > DeviceModel::kMaxWindow) {
    ThrowProfile(profile, "window", "1 to 64 reads", profile.window_reads);
  }
}

DeviceModel::DeviceModel(DeviceProfile profile)
    : profile_(std::move(profile)), free_at_ns_(static_cast<size_t>(profile_.command_queues), 0) {}

int64_t DeviceModel::Serve(const Read& read, int64_t now_ns) noexcept {
  const auto window = static_cast<uint64_t>(profile_.window_reads);
  const bool sequential =
      !profile_.sequential.empty() &&
      std::any_of(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(WindowSize()),
                  [&read](const Read& past) { return past.offset + past.bytes == read.offset; });
  window_[served_ % window] = read;
  ++served_;
  double seconds =
      sequential ? SecondsByBlock(profile_.sequential, read.bytes) : RandomSeconds(read.bytes);
  const auto bytes = static_cast<double>(read.bytes);
  if (profile_.max_reads_per_second > 0) {
    seconds = std::max(seconds, 1 / profile_.max_reads_per_second);
  }
  if (profile_.max_bytes_per_second > 0) {
    seconds = std::max(seconds, bytes / profile_.max_bytes_per_second);
  }
  if (!profile_.core_seconds.empty()) {
    const auto last = static_cast<int>(profile_.core_seconds.size()) - 1;
    seconds += profile_.core_seconds[static_cast<size_t>(std::clamp(read.core, 0, last))];
  }
  seconds = (seconds + ContentionSeconds()) * profile_.command_queues;
  const double latency = profile_.latency_seconds + profile_.latency_per_byte * bytes;

  int64_t& free_at_ns = *std::min_element(free_at_ns_.begin(), free_at_ns_.end());
  free_at_ns = std::max(now_ns, free_at_ns) + std::llround(seconds * 1e9);
  return free_at_ns + std::llround(latency * 1e9);
}

size_t DeviceModel::WindowSize() const noexcept {
  return static_cast<size_t>(std::min(served_, static_cast<uint64_t>(profile_.window_reads)));
}

// The current read is already in the window.
double DeviceModel::RandomSeconds(uint64_t bytes) const noexcept {
  if (profile_.random_in_range.empty() || bytes > profile_.range_block_bytes) {
    return SecondsByBlock(profile_.random, bytes);
  }
  uint64_t begin = UINT64_MAX;
  uint64_t end = 0;
  for (size_t i = 0; i < WindowSize(); ++i) {
    begin = std::min(begin, window_[i].offset);
    end = std::max(end, window_[i].offset + window_[i].bytes);
  }
  const uint64_t range = std::max(end - begin, profile_.random_in_range.front().at_bytes);
  return static_cast<double>(profile_.range_block_bytes) /
         RateAt(profile_.random_in_range, static_cast<double>(range));
}

double DeviceModel::ContentionSeconds() const noexcept {
  const std::vector<double>& seconds = profile_.contention_seconds;
  if (seconds.empty()) return 0;
  size_t queues = 0;
  for (size_t i = 0; i < WindowSize(); ++i) {
    size_t first = 0;
    while (window_[first].queue != window_[i].queue) ++first;
    if (first == i) ++queues;
  }
  return seconds[std::min(queues, seconds.size()) - 1];
}

}  // namespace hearth
