// How fast single cores are in registers.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "base/cpu.h"
#include "ops/probe.h"
#include "planner/hardware_probe.h"

namespace hearth {
namespace {

// All cores in all rounds together take no longer than this, however many there are.
constexpr double kAllCoresSeconds = 5;
constexpr double kLeastCoreSeconds = 0.001;

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// How much probe() did per second in which this thread ran: what others took of the core does not
// make it a little one.
template <typename Probe>
double PerProcessorSecond(const Probe& probe) {
  const double before = ThreadSeconds();
  const double amount = probe().amount;
  return amount / std::max(ThreadSeconds() - before, 1e-9);
}

class CoreProbe final : public HardwareProbe {
 public:
  explicit CoreProbe(const ProfilerEffort& effort) : cpus_(AllowedCpus()), compute_("auto", 1) {
    if (cpus_.empty()) cpus_.push_back(0);
    const double probes = 2.0 * static_cast<double>(effort.rounds) * std::ssize(cpus_);
    seconds_ =
        std::min(effort.core_seconds, std::max(kLeastCoreSeconds, kAllCoresSeconds / probes));
    int8_.resize(cpus_.size());
    float_.resize(cpus_.size());
  }

  int steps() const override { return static_cast<int>(cpus_.size()); }
  std::string Name(int step) const override {
    return fmt::format("core {}", cpus_[static_cast<size_t>(step)]);
  }
  void Measure(int step) override {
    const auto core = static_cast<size_t>(step);
    RunOnCpu(cpus_[core], [&] {
      int8_[core].push_back(PerProcessorSecond([&] { return ProbeInt8(compute_, seconds_); }));
      float_[core].push_back(PerProcessorSecond([&] { return ProbeFloat(compute_, seconds_); }));
    });
  }
  void Finish(HardwareProfile& profile) const override {
    for (size_t i = 0; i < cpus_.size(); ++i) {
      profile.cores.push_back({cpus_[i], SpreadOf(int8_[i]), SpreadOf(float_[i]), true});
    }
    TellBigFromLittle(profile.cores);
  }

 private:
  std::vector<int> cpus_;
  Compute compute_;  // one thread: whichever calls
  double seconds_;
  std::vector<std::vector<double>> int8_;  // per core, per round
  std::vector<std::vector<double>> float_;
};

}  // namespace

void TellBigFromLittle(std::vector<CoreSpeed>& cores) {
  double fastest = 0;
  for (const CoreSpeed& core : cores) fastest = std::max(fastest, core.int8_macs_per_s.max);
  for (CoreSpeed& core : cores) core.is_big = core.int8_macs_per_s.max >= kBigCoreShare * fastest;
}

std::unique_ptr<HardwareProbe> MakeCoreProbe(const ProfilerEffort& effort) {
  return std::make_unique<CoreProbe>(effort);
}

}  // namespace hearth
