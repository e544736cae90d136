// Plans made from what earlier commands left in the cache folder: the machine's profile, and which
// neurons or experts the model needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/model_options.h"
#include "planner/cost/planner.h"
#include "planner/placement/device_placement.h"

namespace hearth::cli {

struct PlanWishes {
  ModelOptions model;               // MODEL, --memory, --ctx, --kv, --mode; no plan
  std::vector<int> cores;           // that may be used
  std::optional<double> min_speed;  // tokens per second
  std::string hardware;             // a profile; empty: the one that `doctor` saved
  std::string text;                 // to learn from what the model needs; empty: the topic walk
  std::optional<int64_t> tokens;    // of it; nothing: 256, or what the text has
  bool record = false;              // also where that was learned before
  bool is_header = false;           // the file has a header alone: nothing can be learned from it
  bool uses_solver = true;          // PlanRequest
  // What a device takes; nothing: the processor computes alone.
  std::optional<DevicePlacement> device;
  // Of a model that is not packed: the device whose matrices are chosen with the plan.
  std::optional<PlacementMachine> matrix_machine;
};

// Measures this machine quickly, with a notice, where no profile is named and none was saved: by
// reading the model's file, or one that is written to the current folder where it is a header.
void MeasureWhereUnknown(const PlanWishes& wishes);

// Learns what the model needs where that is not known yet, with a notice, and keeps it. Warns of a
// profile that may be stale. program_bytes: of the program that runs the plan. Throws
// Error(kNotFound), saying that 'hearth doctor' makes one, where there is no profile.
PlannedRun MakePlanHere(const PlanWishes& wishes, uint64_t program_bytes);

// What of the model goes to a device of this machine, in the memory that the wishes leave the host.
// Throws as PlaceOnDevice.
DevicePlacement PlaceNeurons(const PlanWishes& wishes, uint64_t program_bytes,
                             const ModelProfile* profile, const PlacementMachine& machine);

// What this program, as it is now, takes beside a model that it loads.
uint64_t ProgramBytesWith(const std::string& model);
// By how much the programs that run a plan differ, and one of them from run to run.
inline constexpr uint64_t kProgramMarginBytes = uint64_t{4} << 20;

}  // namespace hearth::cli
