// Start here: from a model's file, a machine's profile and what a user allows to an execution plan
// (P2 §5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/load/engine_options.h"
#include "format/gguf.h"
#include "plan/execution_plan.h"
#include "planner/cost/access_record.h"
#include "planner/cost/device_share.h"
#include "planner/cost/matrix_share.h"
#include "planner/doctor/hardware.h"

namespace hearth {

struct PlanRequest {
  std::string model;  // path
  // memory_bytes: m_max; program_bytes: of the program that runs the plan; context, KV type and
  // mode are kept as they are.
  EngineOptions engine;
  std::vector<int> cores;             // c_allowed: processors that may be used; not empty
  std::optional<double> least_tok_s;  // s_min: then the least memory for this speed
  // Of a packed model, what a device beside the processor computes. Where layers differ in that,
  // engine.may_stream must be false.
  std::optional<DeviceShare> device;
  // The same of another.
  std::optional<MatrixShare> matrices;
  // False: settings are enumerated, which finds the same. For a program that goes on to run the
  // model: once loaded, Z3 stays in its memory.
  bool uses_solver = true;
};

struct PlannedRun {
  ExecutionPlan plan;
  // Decode speeds with 1 GiB more and less of memory; nothing where that changes nothing, or where
  // the model cannot run.
  std::optional<double> tok_s_with_more, tok_s_with_less;
  // Of a context with few tokens in memory, the most that may lie on flash at no cost in time
  // (HiddenKvTokens); nothing where FFNs are read too.
  std::optional<int64_t> hidden_kv_tokens;
};

// The mode in which MakePlan needs a record of what the model asks for: of a packed model that does
// not compute all, and of a mixture that is not packed (kDense) where it does not fit, a speed is
// asked for, or a device takes some of its experts; nothing for others.
std::optional<FfnMode> RecordedModeOf(const GgufFile& file, const PlanRequest& request);

// Throws Error(kOutOfBudget), naming a limit that would do, where no setting fits into the memory:
// known before anything is recorded for the plan.
void CheckPlanMemory(const PlanRequest& request, const HardwareProfile& hardware);

// The fastest setting within the memory, or the one with the least memory for a speed. `accesses`
// where RecordedModeOf names a mode; Error(kInvalidArgument) without them. Throws
// Error(kOutOfBudget) where nothing fits, saying which limit and what the nearest feasible point
// is.
PlannedRun MakePlan(const PlanRequest& request, const HardwareProfile& hardware,
                    const AccessRecord* accesses);

}  // namespace hearth
