#include "planner/simulator/device_model.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace hearth {
namespace {

[[noreturn]] void Refuse(const std::string& where, const std::string& field, const char* expected,
                         double found) {
  throw Error(ErrorCode::kInvalidArgument, where, field, expected, fmt::format("{}", found));
}

void CheckRate(const std::string& where, const std::string& field, double rate) {
  if (!(rate > 0) || rate > 1e18) Refuse(where, field, "a number over 0, up to 1e18", rate);
}

}  // namespace

int SimDevice::num_compute_cores() const {
  return std::accumulate(compute.begin(), compute.end(), 0);
}

double SimDevice::compute_macs_per_s() const {
  double sum = 0;
  for (size_t i = 0; i < cores.size(); ++i) sum += compute[i] * cores[i].macs_per_s;
  return sum;
}

SimDevice OnePlus12() {
  // Fitted: the one speed that makes TurboSparse-Mixtral-47B decode 11.68 tokens per second with 19
  // GB (section 7.2.3). Multiply-adds per cycle of any core; the paper's Figure 1a has no numbers.
  constexpr double kMacsPerCycle = 3.47;
  // Of Hearth's own kernels: a gathered row passes at 0.7 to 0.9 of the speed of one that follows
  // the last (docs/benchmarks.md, row kernels).
  constexpr double kGatheredCost = 1.25;
  // Table 1: 4 KB reads of one mid core. Free: that a full page cache takes in page by page what
  // the cores that compute ask for.
  constexpr double kMappedBytesPerSecond = 1007.95e6;
  constexpr double kBigHz = 3.3e9, kMidHz = 3.0e9, kLittleHz = 2.2e9;  // Table 1

  SimDevice phone;
  phone.name = "oneplus-12";
  phone.flash = Ufs40();  // section 2.3; Table 3: UFS 4.0
  const std::vector<double>& read_seconds = phone.flash.core_seconds;
  // Counts are free but for Table 1's one big core: a Snapdragon 8 Gen 3 (Table 3) has 1 + 5 + 2.
  phone.cores = {{"big", 1, kMacsPerCycle * kBigHz, read_seconds[0]},
                 {"mid", 5, kMacsPerCycle * kMidHz, read_seconds[1]},
                 {"little", 2, kMacsPerCycle * kLittleHz, read_seconds[2]}};
  // Figure 4: four cores compute, one reads. Which ones is free: Table 1's fastest reads.
  phone.compute = {0, 4, 0};
  phone.io_kind = 0;
  phone.memory_bytes_per_s = 60e9;  // free; section 5.3: not what binds
  phone.gathered_cost = kGatheredCost;
  phone.mmap_bytes_per_s = kMappedBytesPerSecond;
  phone.memory_bytes = 19'000'000'000;  // Table 3
  return phone;
}

std::vector<std::string> SimDeviceNames() { return {"oneplus-12"}; }

void CheckSimDevice(const SimDevice& device, const std::string& where) {
  if (device.cores.empty() || device.cores.size() > 16) {
    Refuse(where, "cores", "1 to 16 kinds", static_cast<double>(device.cores.size()));
  }
  if (device.compute.size() != device.cores.size()) {
    Refuse(where, "compute", "a count per kind of core",
           static_cast<double>(device.compute.size()));
  }
  if (device.io_kind < 0 || device.io_kind >= static_cast<int>(device.cores.size())) {
    Refuse(where, "io", "a kind of core", device.io_kind);
  }
  for (size_t i = 0; i < device.cores.size(); ++i) {
    const SimCores& cores = device.cores[i];
    const std::string kind = "cores of kind " + Printable(cores.kind);
    CheckRate(where, kind + ": macs_per_s", cores.macs_per_s);
    if (!(cores.read_seconds >= 0 && cores.read_seconds <= 1)) {
      Refuse(where, kind + ": read_us", "0 to 1e6", cores.read_seconds * 1e6);
    }
    if (cores.count < 1 || cores.count > 1024) {
      Refuse(where, kind + ": count", "1 to 1024", cores.count);
    }
    const int reads = static_cast<int>(i) == device.io_kind ? 1 : 0;
    if (device.compute[i] < 0 || device.compute[i] + reads > cores.count) {
      Refuse(where, kind, "as many as compute and read together", cores.count);
    }
  }
  if (device.num_compute_cores() < 1) Refuse(where, "compute", "at least one core", 0);
  CheckRate(where, "memory: bytes_per_s", device.memory_bytes_per_s);
  if (!(device.gathered_cost >= 1 && device.gathered_cost <= 100)) {
    Refuse(where, "gathered_cost", "1 to 100", device.gathered_cost);
  }
  if (!(device.mmap_bytes_per_s >= 0 && device.mmap_bytes_per_s <= 1e18)) {
    Refuse(where, "mmap_bytes_per_s", "0 to 1e18", device.mmap_bytes_per_s);
  }
  if (device.memory_bytes < 1 || device.memory_bytes > uint64_t{1} << 50) {
    Refuse(where, "memory: bytes", "1 to 2^50", static_cast<double>(device.memory_bytes));
  }
  if (device.mmap_block_bytes < 4096 || device.mmap_block_bytes > uint64_t{1} << 26) {
    Refuse(where, "mmap_block_bytes", "4096 to 2^26", static_cast<double>(device.mmap_block_bytes));
  }
  CheckProfile(device.flash);
}

}  // namespace hearth
