#include "planner/cost/replays.h"

#include <algorithm>
#include <future>

#include "planner/cost/cost_model.h"

namespace hearth {
namespace {

// Of a trace, the part that fills the cache.
constexpr int64_t kWarmUpPart = 4;
// Look-ups of a replay, at most, where settings are compared, and where the chosen one is told of:
// some layers speak for the others where there are more.
constexpr int64_t kLookUpsToCompare = int64_t{1} << 20;
constexpr int64_t kLookUpsToTell = int64_t{8} << 20;
// Caches that differ by less than one part in so many of a model's neurons find the same.
constexpr int64_t kSlotSteps = 128;

// Of a plan, slots as they are then.
StreamPlan WithSlotsBesideKv(const StreamShape& shape, StreamPlan plan) {
  plan.cache_slots = plan.CacheSlotsBeside(shape, kPlannedKvPages);
  plan.lent = {};
  return plan;
}

ExtentPlan WithSlotsBesideKv(const ExtentShape& shape, ExtentPlan plan) {
  plan.cache_slots = plan.SlotsBeside(shape, kPlannedKvPages);
  plan.lent = {};
  return plan;
}

}  // namespace

// `slot_steps`: sizes of caches that are told apart; 0: all of them.
Replays::Key Replays::KeyOf(const EnginePlan& plan, int64_t step, int64_t slot_steps) {
  if (plan.matrices) {
    return {.slots = plan.extents.SlotsBeside(plan.matrices->map().shape(), kPlannedKvPages),
            .step = step};
  }
  const int64_t all = plan.bundles->shape.all_neurons();
  const int64_t grain = slot_steps > 0 ? std::max<int64_t>(1, all / slot_steps) : 1;
  return {.pinned = plan.neurons.pinned_neurons,
          .slots = plan.neurons.CacheSlotsBeside(plan.bundles->shape, kPlannedKvPages) / grain,
          .holds_gates = plan.neurons.holds_gates,
          .step = step,
          .grain = grain};
}

int64_t Replays::LayerStep(int64_t look_ups) const {
  return std::max<int64_t>(1, (accesses_->lists.num_accesses() + look_ups - 1) / look_ups);
}

MissReplay Replays::Make(const EnginePlan& plan, int64_t step) const {
  const CachePolicyKind policy = pipeline_.cache_policy();
  const int64_t skipped = accesses_->tokens / kWarmUpPart;
  if (plan.matrices) {
    const ExtentMap& map = plan.matrices->map();
    return ReplayExperts(accesses_->lists, map, WithSlotsBesideKv(map.shape(), plan.extents),
                         policy, skipped);
  }
  const StreamShape& shape = plan.bundles->shape;
  return ReplayMisses(accesses_->lists, shape, WithSlotsBesideKv(shape, plan.neurons), policy,
                      {skipped, step}, accesses_->guesses ? &*accesses_->guesses : nullptr);
}

const MissReplay* Replays::Of(const EnginePlan& plan, int64_t look_ups, int64_t slot_steps) {
  const int64_t step = LayerStep(look_ups);
  const auto [found, is_new] = made_.try_emplace(KeyOf(plan, step, slot_steps));
  if (is_new) found->second = Make(plan, step);
  return &found->second;
}

const MissReplay* Replays::ToCompare(const EnginePlan& plan) {
  return Of(plan, kLookUpsToCompare, kSlotSteps);
}

const MissReplay* Replays::ToTell(const EnginePlan& plan) { return Of(plan, kLookUpsToTell, 0); }

void Replays::MakeToCompare(const std::vector<EnginePlan>& plans) {
  const int64_t step = LayerStep(kLookUpsToCompare);
  std::vector<std::future<void>> running;
  for (const EnginePlan& plan : plans) {
    const auto [found, is_new] = made_.try_emplace(KeyOf(plan, step, kSlotSteps));
    if (!is_new) continue;
    MissReplay& replay = found->second;
    running.push_back(std::async(std::launch::async,
                                 [this, &replay, step, &plan] { replay = Make(plan, step); }));
  }
  for (std::future<void>& one : running) one.get();
}

}  // namespace hearth
