#include "cli/plan/settle_plan.h"

#include <algorithm>

#include "base/cpu.h"
#include "base/memory_info.h"
#include "cli/plan/make_plan.h"

namespace hearth::cli {
namespace {

// As many as --threads allows, or as this process has the time of.
std::vector<int> CoresFor(int threads) {
  std::vector<int> cores = AllowedCpus();
  const int most = threads > 0 ? threads : AvailableCpus();
  cores.resize(std::min(cores.size(), static_cast<size_t>(most)));
  return cores;
}

ExecutionPlan PlanOnTheFly(const ModelOptions& options) {
  PlanWishes wishes{.model = options, .cores = CoresFor(options.threads)};
  wishes.model.plan.clear();
  wishes.model.more_program_bytes = 0;
  wishes.model.may_stream = true;
  wishes.model.doubts = false;  // LoadEngine will warn
  wishes.uses_solver = false;
  const auto program_with_model = [&] {
    return ProgramBytesWith(options.model) + options.more_program_bytes;
  };
  const uint64_t program_bytes = program_with_model() + kProgramMarginBytes;
  ExecutionPlan plan = MakePlanHere(wishes, program_bytes).plan;
  // Planning leaves something behind in the program that is to run: once more where it is more than
  // was allowed for.
  const uint64_t taken = program_with_model();
  if (taken > program_bytes) plan = MakePlanHere(wishes, taken + kProgramMarginBytes).plan;
  ReturnFreedMemory();
  return plan;
}

}  // namespace

void SettlePlan(ModelOptions& options) {
  if (options.plan.empty()) return;
  options.planned = options.makes_plan() ? PlanOnTheFly(options) : ReadPlan(options.plan);
}

}  // namespace hearth::cli
