// hearth plan MODEL: how to run a model on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/model_options.h"

namespace hearth::cli {

struct PlanArguments {
  ModelOptions model;               // MODEL, --memory, --ctx, --kv, --mode
  std::optional<double> min_speed;  // tokens per second
  std::string cores;                // "0,2-5"; empty: all that this process may use
  std::string hardware;             // a profile; empty: the one that `doctor` saved
  std::string text;                 // to learn which neurons fire; empty: the topic walk
  int64_t tokens = 256;             // of it
  bool record = false;              // also where that was learned before
  std::string output;
};

// --min-speed, --cores, --hw, --text, --tokens, --record, -o and those of models.
void AddPlanOptions(CLI::App& command, PlanArguments& arguments);
// The names of these options, which a placement has no use for.
const std::vector<const char*>& PlanOptionNames();

int PlanModel(const PlanArguments& arguments, bool json);

}  // namespace hearth::cli
