#include "planner/doctor/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "plan/machine_hash.h"
#include "planner/doctor/hardware_machine.h"

namespace hearth {
namespace {

// How far apart two depths are: 8 is as near to 1 as to 64.
double DepthDistance(int a, int b) {
  return std::abs(std::log(static_cast<double>(std::max(a, 1))) -
                  std::log(static_cast<double>(std::max(b, 1))));
}

// The measured reads over a range (0: the whole file) from any core, ascending in size: of each
// size that whose depth is nearest.
std::vector<const IoSpeed*> CurveAtDepth(const StorageProfile& storage, int queue_depth,
                                         uint64_t range_bytes = 0) {
  std::vector<const IoSpeed*> curve;
  for (const IoSpeed& read : storage.reads) {
    if (read.range_bytes != range_bytes || read.cpu >= 0) continue;
    const auto same = std::find_if(curve.begin(), curve.end(), [&](const IoSpeed* other) {
      return other->block_bytes == read.block_bytes;
    });
    if (same == curve.end()) {
      curve.push_back(&read);
    } else if (DepthDistance(read.queue_depth, queue_depth) <
               DepthDistance((*same)->queue_depth, queue_depth)) {
      *same = &read;
    }
  }
  if (curve.empty()) {
    throw Error(ErrorCode::kInternal, "HardwareProfile", "no reads of the whole file");
  }
  std::sort(curve.begin(), curve.end(),
            [](const IoSpeed* a, const IoSpeed* b) { return a->block_bytes < b->block_bytes; });
  return curve;
}

// The measured depths just below and just above this one, of reads of the whole file. Both are the
// same if this depth was measured or lies outside the measured ones.
std::pair<int, int> DepthsAround(const StorageProfile& storage, int queue_depth) {
  std::set<int> depths;
  for (const IoSpeed& read : storage.reads) {
    if (read.range_bytes == 0 && read.cpu < 0) depths.insert(read.queue_depth);
  }
  if (depths.empty()) return {queue_depth, queue_depth};
  const auto above = depths.lower_bound(queue_depth);
  if (above == depths.end()) return {*depths.rbegin(), *depths.rbegin()};
  if (*above == queue_depth || above == depths.begin()) return {*above, *above};
  return {*std::prev(above), *above};
}

// A straight line in the logarithms of both axes through two points of positive numbers.
double OnLogLine(double x, double x0, double y0, double x1, double y1) {
  const double share = std::log(x / x0) / std::log(x1 / x0);
  return y0 * std::pow(y1 / y0, share);
}

// `seconds_of` a read of a curve, for a read of `bytes`: the rules that the header states.
template <typename SecondsOf>
double SecondsOnCurve(const std::vector<const IoSpeed*>& curve, double bytes,
                      const SecondsOf& seconds_of) {
  const auto size = [](const IoSpeed* read) { return static_cast<double>(read->block_bytes); };
  if (bytes <= size(curve.front())) return seconds_of(*curve.front());
  if (bytes >= size(curve.back())) return seconds_of(*curve.back()) * bytes / size(curve.back());
  const auto above = std::find_if(curve.begin(), curve.end(),
                                  [&](const IoSpeed* read) { return size(read) >= bytes; });
  const IoSpeed& high = **above;
  const IoSpeed& low = **(above - 1);
  return OnLogLine(bytes, size(&low), seconds_of(low), size(&high), seconds_of(high));
}

// What storage gives beside so many threads; where the rounds do not tell that apart from what it
// gives beside more of them, the less of the two, so that fewer threads do not look faster by
// chance.
double BusyBytesPerSecond(const HardwareProfile& profile, int threads, Spread ThreadSpeed::*busy) {
  const ThreadSpeed& wanted = profile.ForThreads(threads);
  double least = (wanted.*busy).median;
  for (const ThreadSpeed& more : profile.threads) {
    const bool differ = (more.*busy).max < (wanted.*busy).min;
    if (more.threads > wanted.threads && !differ) least = std::min(least, (more.*busy).median);
  }
  return least;
}

const CoreSpeed* CoreOf(const HardwareProfile& profile, int cpu) {
  const auto found = std::find_if(profile.cores.begin(), profile.cores.end(),
                                  [cpu](const CoreSpeed& core) { return core.cpu == cpu; });
  return found != profile.cores.end() ? &*found : nullptr;
}

}  // namespace

std::string HardwareProfile::MachineHash() const {
  return hearth::MachineHash(cpu_model, isa, cpus, memory_bytes);
}

const ThreadSpeed& HardwareProfile::ForThreads(int wanted) const {
  if (threads.empty()) throw Error(ErrorCode::kInternal, "HardwareProfile", "no threads");
  return *std::min_element(threads.begin(), threads.end(),
                           [&](const ThreadSpeed& a, const ThreadSpeed& b) {
                             return std::abs(a.threads - wanted) < std::abs(b.threads - wanted);
                           });
}

double HardwareProfile::IoBytesPerSecond(uint64_t block_bytes, int queue_depth) const {
  const double bytes = static_cast<double>(std::max<uint64_t>(block_bytes, 1));
  const auto rate = [&](int depth) {
    const auto seconds = [](const IoSpeed& read) {
      return static_cast<double>(read.block_bytes) / read.bytes_per_s.median;
    };
    return bytes / SecondsOnCurve(CurveAtDepth(storage, depth), bytes, seconds);
  };
  const auto [low, high] = DepthsAround(storage, queue_depth);
  if (low == high) return rate(low);
  return OnLogLine(queue_depth, low, rate(low), high, rate(high));
}

double HardwareProfile::IoCpuSecondsPerRead(uint64_t block_bytes, int queue_depth) const {
  const double bytes = static_cast<double>(std::max<uint64_t>(block_bytes, 1));
  return SecondsOnCurve(CurveAtDepth(storage, queue_depth), bytes,
                        [](const IoSpeed& read) { return read.cpu_seconds_per_read.median; });
}

double HardwareProfile::IoBatchSeconds(uint64_t block_bytes, int queue_depth) const {
  const double bytes = static_cast<double>(std::max<uint64_t>(block_bytes, 1));
  return SecondsOnCurve(CurveAtDepth(storage, queue_depth), bytes,
                        [](const IoSpeed& read) { return read.batch_seconds.median; });
}

double HardwareProfile::IoRangeGain(uint64_t block_bytes, uint64_t range_bytes) const {
  const IoSpeed* within = nullptr;
  for (const IoSpeed& read : storage.reads) {
    if (read.range_bytes < std::max<uint64_t>(range_bytes, 1) || read.cpu >= 0) continue;
    if (within == nullptr || read.range_bytes < within->range_bytes) within = &read;
  }
  if (within == nullptr) return 1;
  const auto bytes = static_cast<double>(block_bytes);
  const int depth = within->queue_depth;
  const auto whole_curve = CurveAtDepth(storage, depth);
  const auto range_curve = CurveAtDepth(storage, depth, within->range_bytes);
  const auto gain = [&](double Spread::*of_whole, double Spread::*of_range) {
    const auto seconds_by = [](double Spread::*speed) {
      return [speed](const IoSpeed& read) {
        return static_cast<double>(read.block_bytes) / read.bytes_per_s.*speed;
      };
    };
    return SecondsOnCurve(whole_curve, bytes, seconds_by(of_whole)) /
           SecondsOnCurve(range_curve, bytes, seconds_by(of_range));
  };
  const bool differ = gain(&Spread::max, &Spread::min) > 1 || gain(&Spread::min, &Spread::max) < 1;
  return differ ? gain(&Spread::median, &Spread::median) : 1;
}

double HardwareProfile::BusyIoShare(int wanted) const {
  const double busy = BusyBytesPerSecond(*this, wanted, &ThreadSpeed::busy_io_bytes_per_s);
  return std::min(1.0, busy / IoBytesPerSecond(kBusyBlockBytes, kBusyQueueDepth));
}

double HardwareProfile::BusyNeuronShare(int wanted) const {
  const double busy = BusyBytesPerSecond(*this, wanted, &ThreadSpeed::busy_neuron_bytes_per_s);
  return std::min(1.0, busy / IoBytesPerSecond(kBusyNeuronBytes, kBusyNeuronDepth));
}

double HardwareProfile::LookUpSeconds() const {
  const auto big =
      std::find_if(cores.begin(), cores.end(), [](const CoreSpeed& core) { return core.is_big; });
  return big != cores.end() ? big->look_up_seconds.median : 0;
}

double HardwareProfile::FloatMacsPerSecond(std::span<const int> processors) const {
  double sum = 0;
  for (const int cpu : processors) {
    const CoreSpeed* core = CoreOf(*this, cpu);
    if (core == nullptr && !cores.empty()) core = &cores.front();
    if (core != nullptr) sum += core->float_ops_per_s.median / 2;
  }
  return sum;
}

double HardwareProfile::CoreShare(int cpu) const {
  const CoreSpeed* core = CoreOf(*this, cpu);
  if (core == nullptr || core->is_big) return 1;
  double fastest = 0;
  for (const CoreSpeed& one : cores) fastest = std::max(fastest, one.int8_macs_per_s.median);
  return fastest > 0 ? core->int8_macs_per_s.median / fastest : 1;
}

std::vector<int> HardwareProfile::FastestCores(std::span<const int> allowed, int count) const {
  std::vector<int> processors(allowed.begin(), allowed.end());
  std::stable_sort(processors.begin(), processors.end(),
                   [&](int a, int b) { return CoreShare(a) > CoreShare(b); });
  processors.resize(std::min(processors.size(), static_cast<size_t>(std::max(count, 1))));
  std::sort(processors.begin(), processors.end());
  return processors;
}

int HardwareProfile::FastestReader(std::span<const int> processors) const {
  const auto smallest_of = [&](int cpu) {
    const IoSpeed* smallest = nullptr;
    for (const IoSpeed& read : storage.reads) {
      if (read.cpu != cpu) continue;
      if (smallest == nullptr || read.block_bytes < smallest->block_bytes) smallest = &read;
    }
    return smallest;
  };
  int fastest = processors.front();
  for (const int cpu : processors) {
    const IoSpeed *const best = smallest_of(fastest), *const other = smallest_of(cpu);
    if (best == nullptr || other == nullptr) continue;
    if (other->bytes_per_s.min > best->bytes_per_s.max) fastest = cpu;
  }
  return fastest;
}

ThreadSpeed HardwareProfile::ForCores(std::span<const int> processors) const {
  ThreadSpeed speed = ForThreads(static_cast<int>(processors.size()));
  double here = 0, measured = 0;
  for (const int cpu : processors) here += CoreShare(cpu);
  const size_t used = std::min(cores.size(), static_cast<size_t>(speed.threads));
  for (size_t i = 0; i < used; ++i) measured += CoreShare(cores[i].cpu);
  if (here == 0 || measured == 0) return speed;
  // Of a core, on average: another number of threads may have been measured.
  const double factor =
      here / static_cast<double>(processors.size()) / (measured / static_cast<double>(used));
  for (Spread ThreadSpeed::*rate :
       {&ThreadSpeed::matrix_bytes_per_s, &ThreadSpeed::dot_bytes_per_s,
        &ThreadSpeed::add_bytes_per_s, &ThreadSpeed::narrow_dot_bytes_per_s,
        &ThreadSpeed::narrow_add_bytes_per_s, &ThreadSpeed::check_bytes_per_s}) {
    double& median = (speed.*rate).median;
    median = std::min(factor * median, std::max(median, speed.read_bytes_per_s.median));
  }
  speed.prompt_macs_per_s.median *= factor;
  return speed;
}

void CheckIsThisMachine(const HardwareProfile& profile, const std::string& file) {
  HardwareProfile here;
  DescribeMachine(here);
  if (profile.MachineHash() == here.MachineHash()) return;
  const auto name = [](const HardwareProfile& machine) {
    return fmt::format("{} with {}, {} of its processors and {}", Printable(machine.cpu_model),
                       Printable(machine.isa), machine.cpus, FormatSize(machine.memory_bytes));
  };
  throw Error(ErrorCode::kInvalidArgument, file,
              "was measured on another machine (run 'hearth doctor' here)", name(here),
              name(profile));
}

double UploadReadRate(const HardwareProfile& profile) {
  return profile.IoBytesPerSecond(uint64_t{1} << 20, kBusyQueueDepth);
}

}  // namespace hearth
