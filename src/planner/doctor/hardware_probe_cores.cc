// How fast single cores are in registers, and at looking neurons up.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <vector>

#include "base/budget.h"
#include "base/cpu.h"
#include "base/stopwatch.h"
#include "cache/neuron_cache.h"
#include "ops/probe.h"
#include "planner/doctor/hardware_probe.h"

namespace hearth {
namespace {

// All cores in all rounds together take no longer than this, however many there are.
constexpr double kAllCoresSeconds = 5;
constexpr double kLeastCoreSeconds = 0.001;

// How much probe() did per second in which this thread ran: what others took of the core does not
// make it a little one.
template <typename Probe>
double PerProcessorSecond(const Probe& probe) {
  const double before = ThreadSeconds();
  const double amount = probe().amount;
  return amount / std::max(ThreadSeconds() - before, 1e-9);
}

// Tokens that ask the default cache for neurons: as many as those of a 7B model, half of which are
// there, and a tenth of a layer's asked for, others every time.
class LookUps {
 public:
  LookUps()
      : cache_(budget_,
               {.num_keys = kLayers * kNeurons,
                .num_slots = kLayers * kNeurons / 2,
                .num_layers = kLayers},
               {}) {
    std::vector<int32_t> keys, slots(kLayers * kNeurons / 2);
    for (int32_t key = 0; key < kLayers * kNeurons; key += 2) keys.push_back(key);
    cache_.Seed(keys, slots);
  }

  // Seconds of this thread per neuron.
  double SecondsOfOne() {
    AskForOthers();
    const double before = ThreadSeconds();
    const int64_t count = LookUpToken();
    return (ThreadSeconds() - before) / static_cast<double>(count);
  }

 private:
  static constexpr int32_t kLayers = 32, kNeurons = 14336;

  void AskForOthers() {
    std::bernoulli_distribution is_asked(0.1);
    for (size_t layer = 0; layer < batches_.size(); ++layer) {
      batches_[layer].clear();
      const auto first = static_cast<int32_t>(layer) * int32_t{kNeurons};
      for (int32_t n = 0; n < kNeurons; ++n) {
        if (is_asked(random_)) batches_[layer].push_back(first + n);
      }
    }
  }

  int64_t LookUpToken() {
    int64_t count = 0;
    for (const std::vector<int32_t>& keys : batches_) {
      entries_.resize(keys.size());
      cache_.Lookup({0, keys}, entries_);
      for (size_t i = 0; i < keys.size(); ++i) {
        if (entries_[i].found == CacheFound::kMiss) cache_.Loaded(keys[i]);
      }
      cache_.Release({0, keys}, entries_);
      count += std::ssize(keys);
    }
    cache_.EndToken();
    return count;
  }

  Budget budget_;
  NeuronCache cache_;
  std::mt19937 random_{7};
  std::array<std::vector<int32_t>, kLayers> batches_;  // a layer's keys
  std::vector<CacheEntry> entries_;
};

class CoreProbe final : public HardwareProbe {
 public:
  explicit CoreProbe(const ProfilerEffort& effort) : cpus_(AllowedCpus()), compute_("auto", 1) {
    if (cpus_.empty()) cpus_.push_back(0);
    const double probes = 2.0 * static_cast<double>(effort.rounds) * std::ssize(cpus_);
    seconds_ =
        std::min(effort.core_seconds, std::max(kLeastCoreSeconds, kAllCoresSeconds / probes));
    int8_.resize(cpus_.size());
    float_.resize(cpus_.size());
    look_ups_.resize(cpus_.size());
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
      look_ups_[core].push_back(cache_.SecondsOfOne());
    });
  }
  void Finish(HardwareProfile& profile) const override {
    for (size_t i = 0; i < cpus_.size(); ++i) {
      profile.cores.push_back(
          {cpus_[i], SpreadOf(int8_[i]), SpreadOf(float_[i]), SpreadOf(look_ups_[i]), true});
    }
    TellBigFromLittle(profile.cores);
  }

 private:
  std::vector<int> cpus_;
  Compute compute_;  // one thread: whichever calls
  double seconds_;
  std::vector<std::vector<double>> int8_;  // per core, per round
  std::vector<std::vector<double>> float_;
  std::vector<std::vector<double>> look_ups_;
  LookUps cache_;
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
