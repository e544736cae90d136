// hearth plan MODEL: how to run a model on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/make_plan.h"
#include "cli/plan/plan_placement.h"

namespace hearth::cli {

struct PlanArguments {
  PlanWishes wishes;  // without cores
  std::string cores;  // "0,2-5"; empty: all that this process may use
  std::string output;
  bool from_header =
      false;  // the model's weights are not here: its hash is not known, and is zeros
  // --device-memory with an output: what of the model a device takes is a part of the plan.
  std::optional<PlacementArguments> placement;
};

// --min-speed, --cores, --hw, --text, --tokens, --record, -o and those of models.
void AddPlanOptions(CLI::App& command, PlanArguments& arguments);
// The names of these options, which a placement has no use for.
const std::vector<const char*>& PlanOptionNames();

int PlanModel(const PlanArguments& arguments, bool json);

// The same for a shape of which no file is here, as a plain file of Q4_0 weights. Throws
// Error(kUnsupported) for one whose speed depends on what its weights are.
int PlanShape(const PlanArguments& arguments, bool json);

}  // namespace hearth::cli
