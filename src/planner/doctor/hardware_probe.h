// The parts of the hardware profiler: each measures some quantities once per round.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "planner/doctor/hardware.h"
#include "planner/doctor/hardware_profiler.h"

namespace hearth {

class ProbeFile;  // hardware_probe_reads.h

class HardwareProbe {
 public:
  virtual ~HardwareProbe() = default;
  // What there is to measure, a name each; the same in every round.
  virtual int steps() const = 0;
  virtual std::string Name(int step) const = 0;
  // Measures it once more.
  virtual void Measure(int step) = 0;
  // Enters the spreads of all rounds.
  virtual void Finish(HardwareProfile& profile) const = 0;
};

// Of single cores; of `isa`'s kernels.
std::unique_ptr<HardwareProbe> MakeCoreProbe(const ProfilerEffort& effort);
// Of the engine's operators on memory, by number of threads, and of reads while they take memory
// in. Allocates and writes that memory. The file must outlive the probe, here and below.
std::unique_ptr<HardwareProbe> MakeThreadProbe(const ProfilerEffort& effort, const ProbeFile& file);
// Of products with tiles, for kMeasuredTokens: less than two seconds in all rounds together.
std::unique_ptr<HardwareProbe> MakeTileProbe(const ProfilerEffort& effort);
// Of reads beside nothing.
std::unique_ptr<HardwareProbe> MakeStorageProbe(const ProfilerEffort& effort,
                                                const ProbeFile& file);

// Sets is_big of all cores: by what they reached in their best round, because a core that others
// use too is slow only at times.
void TellBigFromLittle(std::vector<CoreSpeed>& cores);

// Calls fn on a thread of its own that stays on this processor; on the calling one where cpu is -1.
// What fn throws, this throws.
void RunOnCpu(int cpu, const std::function<void()>& fn);

}  // namespace hearth
