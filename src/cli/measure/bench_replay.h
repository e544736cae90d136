// hearth bench --trace: what a cache would have hit on recorded accesses.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cache/cache_policy.h"

namespace hearth::cli {

struct ReplayArguments {
  std::string trace;
  std::string plot;
  std::vector<CachePolicyKind> policies;  // as asked for; none: all
  std::vector<double> capacities;         // shares; none: 5 to 60%
};

// --trace, --policy, --capacity and --plot.
void AddReplayOptions(CLI::App& command, ReplayArguments& arguments);

// Throws UsageError where options of a replay come without --trace, or others with it.
void CheckReplayUsage(const CLI::App& command, const ReplayArguments& arguments);

int Replay(const ReplayArguments& arguments, bool json);

}  // namespace hearth::cli
