#include "planner/doctor/hardware_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/units.h"

namespace hearth {
namespace {

using Warnings = std::vector<std::string>;

constexpr uint64_t kLittleMemoryBytes = uint64_t{2} << 30;
constexpr uint64_t kLittleLockableBytes = uint64_t{256} << 20;
// Of (max - min) / median. A quiet machine stays under a tenth.
constexpr double kWideSpread = 0.3;
constexpr double kHighLoad = 0.5;  // per processor
// All threads against one: less than this is no gain worth a thread.
constexpr double kNoMoreBandwidth = 1.15;
// A channel of DDR4 or DDR5 gives 20 to 35 GB/s, of which programs see most.
constexpr double kSingleChannelBytesPerSecond = 15e9;
// Q4_0, as a token reads them.
constexpr double kBytesOf7B = 4.0e9;
// One neuron of a 7B model. Bamboo has 459,000, of which a token uses about a tenth: a tenth of
// those.
constexpr uint64_t kNeuronBytes = 7168;
constexpr int kNeuronDepth = 32;
constexpr double kReadsOfToken = 4600;
constexpr double kSlowReadsPerSecond = 50000;
constexpr double kSlowBytesPerSecond = 500e6;
constexpr uint64_t kLargeBlockBytes = uint64_t{1} << 20;
// A head has to move.
constexpr double kSpinningSeconds = 2e-3;

constexpr std::array<std::string_view, 4> kDotIsas = {"avx-vnni", "avx512-vnni", "dotprod", "i8mm"};

double RelativeWidth(const Spread& spread) {
  return spread.median > 0 ? (spread.max - spread.min) / spread.median : 0;
}

void WarnOfMemory(const HardwareProfile& profile, Warnings& out) {
  if (profile.available_memory_bytes < kLittleMemoryBytes) {
    out.push_back(
        fmt::format("only {} of memory is free: larger models will be read from disk all the time",
                    FormatSize(profile.available_memory_bytes)));
  }
  if (profile.mlock_limit_bytes && *profile.mlock_limit_bytes < kLittleLockableBytes) {
    out.push_back(
        fmt::format("only {} may be locked in memory (ulimit -l): where memory gets scarce the "
                    "system may swap weights out",
                    FormatSize(*profile.mlock_limit_bytes)));
  }
  if (profile.threads.empty()) return;
  const Spread& one = profile.threads.front().read_bytes_per_s;
  const ThreadSpeed& all = profile.threads.back();
  if (all.threads > 1 && all.read_bytes_per_s.median < kNoMoreBandwidth * one.median) {
    out.push_back(
        fmt::format("one thread reads memory as fast as {} do: more threads will not decode faster",
                    all.threads));
  }
  if (all.read_bytes_per_s.median < kSingleChannelBytesPerSecond) {
    out.push_back(fmt::format(
        "memory gives {:.1f} GB/s, no more than one channel does: a dense 7B model in Q4_0 cannot "
        "decode more than {:.1f} tokens per second",
        all.read_bytes_per_s.median / 1e9, all.read_bytes_per_s.median / kBytesOf7B));
  }
}

void WarnOfOthers(const HardwareProfile& profile, Warnings& out) {
  const double load = profile.load_average / std::max(profile.machine_cpus, 1);
  if (load > kHighLoad) {
    out.push_back(fmt::format(
        "other programs were running (load {:.1f} on {} processors): measure again when they are "
        "not, or expect what is planned to be that of a busy machine",
        profile.load_average, profile.machine_cpus));
  }
  double widest = 0;
  for (const ThreadSpeed& speed : profile.threads) {
    widest = std::max(widest, RelativeWidth(speed.read_bytes_per_s));
  }
  if (widest > kWideSpread) {
    out.push_back(fmt::format(
        "memory bandwidth moved by {:.0f}% between rounds: others use this memory too, and speeds "
        "will move as much",
        100 * widest));
  }
  widest = 0;
  for (const CoreSpeed& core : profile.cores) {
    widest = std::max(widest, RelativeWidth(core.int8_macs_per_s));
  }
  if (widest > kWideSpread) {
    out.push_back(
        fmt::format("a core's speed moved by {:.0f}% between rounds: its clock changes, or other "
                    "machines use it",
                    100 * widest));
  }
}

void WarnOfReads(const HardwareProfile& profile, Warnings& out) {
  const StorageProfile& storage = profile.storage;
  if (storage.is_in_memory) {
    out.push_back(
        fmt::format("{} lies in memory: its speeds are not those of a disk", storage.directory));
  } else if (!storage.is_direct) {
    out.push_back(fmt::format(
        "{} has no direct reads: they go through the page cache, which costs processor time and "
        "memory",
        storage.directory));
  }
  if (!profile.has_io_uring) {
    out.push_back(
        "io_uring is not permitted here: threads that call pread read instead, for more processor "
        "time per read");
  }
  if (storage.reads.empty()) return;
  const double reads = profile.IoBytesPerSecond(kNeuronBytes, kNeuronDepth) / kNeuronBytes;
  const double alone = kNeuronBytes / profile.IoBytesPerSecond(kNeuronBytes, 1);
  if (alone > kSpinningSeconds) {
    out.push_back(fmt::format(
        "a single small read takes {:.1f} ms, as on a disk that spins: models larger than memory "
        "will run very slowly from here",
        1000 * alone));
  } else if (reads < kSlowReadsPerSecond) {
    out.push_back(
        fmt::format("storage serves {:.0f} neurons per second: a sparse 7B model that finds nine "
                    "tenths of what "
                    "it uses in memory cannot decode more than {:.1f} tokens per second",
                    reads, reads / kReadsOfToken));
  }
  const double large = profile.IoBytesPerSecond(kLargeBlockBytes, kNeuronDepth);
  if (large < kSlowBytesPerSecond) {
    out.push_back(fmt::format(
        "storage gives {:.0f} MB/s at most: prompts of models larger than memory will take long",
        large / 1e6));
  }
}

void WarnOfProcessor(const HardwareProfile& profile, Warnings& out) {
  if (std::find(kDotIsas.begin(), kDotIsas.end(), profile.isa) == kDotIsas.end()) {
    out.push_back(fmt::format(
        "the processor has no dot products of bytes (kernels: {}): prompts take two to four times "
        "as long as with them",
        profile.isa));
  }
  const auto little = std::count_if(profile.cores.begin(), profile.cores.end(),
                                    [](const CoreSpeed& core) { return !core.is_big; });
  if (little > 0) {
    out.push_back(fmt::format("{} of {} cores have less than {:.0f}% of the speed of the fastest",
                              little, profile.cores.size(), 100 * kBigCoreShare));
  }
  for (const std::string& name : profile.accelerators) {
    out.push_back(fmt::format("{} is there, but Hearth cannot use it yet", name));
  }
}

}  // namespace

std::vector<std::string> HardwareWarnings(const HardwareProfile& profile) {
  Warnings warnings;
  WarnOfOthers(profile, warnings);
  WarnOfMemory(profile, warnings);
  WarnOfReads(profile, warnings);
  WarnOfProcessor(profile, warnings);
  return warnings;
}

}  // namespace hearth
