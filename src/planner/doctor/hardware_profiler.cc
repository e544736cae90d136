#include "planner/doctor/hardware_profiler.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "accel/devices.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "planner/doctor/hardware_machine.h"
#include "planner/doctor/hardware_probe.h"
#include "planner/doctor/hardware_probe_reads.h"
#include "planner/doctor/hardware_warnings.h"

namespace hearth {
namespace {

// Of the whole work, as the progress shows it: filling memory and writing the file.
constexpr double kPreparedShare = 0.2;

void CheckEffort(const ProfilerEffort& effort) {
  const bool good = effort.rounds >= 1 && effort.hidden_size >= 32 &&
                    effort.hidden_size % 32 == 0 && effort.ffn_neurons >= 16 &&
                    effort.prompt_tokens >= 1 && effort.file_bytes >= kLeastProbeFileBytes;
  if (good) return;
  throw Error(ErrorCode::kInvalidArgument, "hardware profiler", "effort that makes no sense");
}

// Tells whoever watches how many of the steps are done.
class StepWatch {
 public:
  StepWatch(const ProfilerProgressFn& progress, int steps) : progress_(progress), steps_(steps) {}

  void Begin(const std::string& what) {
    if (progress_) progress_(kPreparedShare + (1 - kPreparedShare) * done_ / steps_, what);
    ++done_;
  }

 private:
  const ProfilerProgressFn& progress_;
  double steps_;
  double done_ = 0;
};

// Lists the devices that OpenCL knows and measures those that are no processors, as nothing is
// placed on a processor but for tests. A driver or a device that fails is a warning, and the rest
// is measured.
void MeasureDevices(const ProfilerOptions& options, HardwareProfile& profile) {
  accel::DeviceList list;
  try {
    list = accel::ListDevices();
  } catch (const Error& error) {
    profile.warnings.push_back(fmt::format("devices were not listed: {}", error.what()));
  }
  for (size_t i = 0; i < list.devices.size(); ++i) {
    DeviceSpeed device = {i, list.devices[i], std::nullopt, {}};
    try {
      if (device.info.kind != accel::DeviceKind::kCpu || options.device == i) {
        device.rates = MeasureDevice(i, {.rounds = options.effort.rounds}, options.programs);
        device.batches =
            MeasureBatches(i, {.rounds = std::min(options.effort.rounds, 3)}, options.programs);
      }
    } catch (const Error& error) {
      profile.warnings.push_back(fmt::format("device {} was not measured: {}", i, error.what()));
    }
    profile.devices.push_back(std::move(device));
  }
}

using Probes = std::array<std::unique_ptr<HardwareProbe>, 4>;

// Returns how many rounds there was time for.
int MeasureInRounds(const Probes& probes, const ProfilerEffort& effort,
                    const Stopwatch& since_start, const ProfilerProgressFn& progress) {
  int steps = 0;
  for (const auto& probe : probes) steps += probe->steps();
  StepWatch watch(progress, steps * effort.rounds);
  for (int round = 0; round < effort.rounds; ++round) {
    const Stopwatch of_round;
    for (const auto& probe : probes) {
      for (int step = 0; step < probe->steps(); ++step) {
        watch.Begin(probe->Name(step));
        probe->Measure(step);
      }
    }
    if (since_start.Seconds() + of_round.Seconds() > effort.total_seconds) return round + 1;
  }
  return effort.rounds;
}

}  // namespace

ProfilerEffort QuickEffort() {
  return {.rounds = 3,
          .total_seconds = 8,
          .core_seconds = 0.005,
          .thread_seconds = 0.01,
          .read_seconds = 0.005,
          .write_seconds = 4,
          .memory_bytes = uint64_t{64} << 20,
          .file_bytes = uint64_t{64} << 20,
          .hidden_size = 1024,
          .ffn_neurons = 2816,
          .prompt_tokens = 32};
}

void RunOnCpu(int cpu, const std::function<void()>& fn) {
  if (cpu < 0) return fn();
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      PinThisThread(cpu);  // a wish, as in WorkerTeam
      fn();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

HardwareProfile MeasureHardware(const ProfilerOptions& options,
                                const ProfilerProgressFn& progress) {
  const Stopwatch since_start;
  CheckEffort(options.effort);
  HardwareProfile profile;
  DescribeMachine(profile);
  profile.measured_at_s = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  const auto prepared = [&](double share, const std::string& what) {
    if (progress) progress(kPreparedShare * share, what);
  };
  // The disk first: where it has no room, that is known at once.
  prepared(0, "opening a file");
  const ProbeFile file(options, [&](double share) { prepared(share, "writing a file"); });
  prepared(1, "filling memory");
  const Probes probes = {MakeCoreProbe(options.effort), MakeTileProbe(options.effort),
                         MakeThreadProbe(options.effort, file),
                         MakeStorageProbe(options.effort, file)};
  profile.rounds = MeasureInRounds(probes, options.effort, since_start, progress);
  for (const auto& probe : probes) probe->Finish(profile);
  profile.warnings = HardwareWarnings(profile);
  MeasureDevices(options, profile);
  return profile;
}

}  // namespace hearth
