#include "planner/cost/plan_settings.h"

#include <algorithm>

#include "pipeline/streamed_ffns.h"

namespace hearth {
namespace {

// Up to here every number of threads is tried; from there on powers of 2 and all, as `doctor`
// measures them.
constexpr int kEveryThreads = 4;

// Pieces only where there would be more than one.
std::vector<IoStrategy> ReadsOfNeurons(const EnginePlan& plan) {
  const BundleLayout& layout = plan.bundles->layout;
  const uint64_t rest = layout.stride - layout.split;
  std::vector<IoStrategy> strategies = {IoStrategy::kWhole};
  if (plan.neurons.holds_gates) {
    if (rest > kNeuronPieceBytes) strategies.push_back(IoStrategy::kPieces);
    strategies.push_back(IoStrategy::kSequential);
    return strategies;
  }
  strategies.push_back(IoStrategy::kHalves);
  if (layout.stride > kNeuronPieceBytes) strategies.push_back(IoStrategy::kPieces);
  if (std::max(layout.split, rest) > kNeuronPieceBytes) {
    strategies.push_back(IoStrategy::kHalvesInPieces);
  }
  return strategies;
}

}  // namespace

std::vector<IoStrategy> StrategiesOf(const EnginePlan& plan, bool has_accesses) {
  if (!plan.is_streamed()) return {IoStrategy::kNone};
  if (plan.matrices && plan.matrices->map().num_experts() > 1) {
    if (!has_accesses) return {};
    return {IoStrategy::kExperts};
  }
  const bool reads_all = plan.matrices || plan.mode == FfnMode::kDense ||
                         (plan.mode == FfnMode::kGated && !plan.neurons.holds_gates);
  if (reads_all) return {IoStrategy::kSequential};
  return ReadsOfNeurons(plan);
}

std::vector<std::vector<int>> CoreSets(const HardwareProfile& hardware,
                                       const std::vector<int>& allowed) {
  const auto most = static_cast<int>(allowed.size());
  std::vector<std::vector<int>> sets;
  for (int n = 1; n < most; n = n < kEveryThreads ? n + 1 : 2 * n) {
    sets.push_back(hardware.FastestCores(allowed, n));
  }
  sets.push_back(hardware.FastestCores(allowed, most));
  return sets;
}

}  // namespace hearth
