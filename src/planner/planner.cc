#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "cache/cache_policy.h"
#include "engine/engine_plan.h"
#include "engine/ffn_mode.h"
#include "format/packed_file.h"
#include "planner/cost_model.h"
#include "planner/miss_replay.h"
#include "planner/plan_menu.h"

namespace hearth {
namespace {

constexpr std::array kSplits = {0.0, 0.25, 0.5, 0.75};
// Of a trace, the part that fills the cache.
constexpr int64_t kWarmUpPart = 4;
// Tokens in the KV cache when a token's time is told, and of the prompt whose speed is.
constexpr int64_t kPlannedContext = 64;
constexpr int64_t kPlannedPrompt = 128;
constexpr uint64_t kOneGib = uint64_t{1} << 30;
// Budgets that are tried for a speed, and how often the gap between two is halved.
constexpr int kBudgets = 9;
constexpr int kHalvings = 6;

// A setting of one budget.
struct Setting {
  uint64_t limit_bytes = 0;
  int threads = 1;
  IoStrategy strategy = IoStrategy::kNone;
  size_t split = 0;

  // One by one, those that a token asks for.
  bool reads_neurons() const {
    return strategy == IoStrategy::kWhole || strategy == IoStrategy::kHalves;
  }
};

struct Evaluated {
  Setting setting;
  MenuEntry entry;
  TokenCost cost;
};

class Planner {
 public:
  Planner(const PlanRequest& request, const HardwareProfile& hardware, const AccessRecord* accesses)
      : request_(request),
        hardware_(hardware),
        accesses_(accesses),
        file_(GgufFile::Open(request.model)) {
    if (request.cores.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "plan", "no processor may be used");
    }
  }

  // What all in memory takes, and the least that the model can run in.
  uint64_t ResidentLimit() const {
    EngineOptions options = request_.engine;
    options.may_stream = false;
    return Limited(options, UINT64_MAX / 2).needed_bytes();
  }
  uint64_t SmallestLimit() const {
    return Limited(request_.engine, 1).needed_bytes() + (uint64_t{4} << 20);
  }

  // All settings within a budget; none where the model cannot run in it.
  const std::vector<Evaluated>& At(uint64_t limit_bytes) {
    const auto [found, is_new] = evaluated_.try_emplace(limit_bytes);
    if (is_new) found->second = Evaluate(limit_bytes);
    return found->second;
  }

  // The fastest of them.
  std::optional<Evaluated> FastestAt(uint64_t limit_bytes) {
    const std::vector<Evaluated>& all = At(limit_bytes);
    const MenuChoice choice = SolveMenu(EntriesOf(all), Limits(limit_bytes), MenuGoal::kFastest);
    if (!choice.entry) return std::nullopt;
    return all[*choice.entry];
  }

  // The least memory at which the fastest setting is fast enough.
  Evaluated LeastMemory(double tok_s) {
    const uint64_t smallest = SmallestLimit();
    const uint64_t most = std::min(ResidentLimit(), Most());
    std::vector<Evaluated> all;
    for (int i = 0; i < kBudgets; ++i) {
      const uint64_t limit = most <= smallest ? most
                                              : smallest + (most - smallest) / (kBudgets - 1) *
                                                               static_cast<uint64_t>(i);
      for (Evaluated one : At(i == kBudgets - 1 ? most : limit)) {
        one.entry.budget = i;
        all.push_back(one);
      }
      if (most <= smallest) break;
    }
    MenuLimits limits = Limits(Most());
    limits.most_token_us = static_cast<uint64_t>(1e6 / tok_s);
    const MenuChoice choice = SolveMenu(EntriesOf(all), limits, MenuGoal::kLeastMemory);
    if (!choice.entry) RefuseSpeed(tok_s, most);
    return Narrow(all[*choice.entry], tok_s, smallest,
                  most > smallest ? (most - smallest) / (kBudgets - 1) : 0);
  }

  ExecutionPlan PlanOf(const Evaluated& chosen) const;

  uint64_t Most() const { return request_.engine.memory_bytes.value_or(DefaultLimitBytes()); }

  [[noreturn]] void RefuseMemory() const {
    const uint64_t mib = (SmallestLimit() >> 20) + 1;
    throw Error(ErrorCode::kOutOfBudget, "--memory",
                fmt::format("{} does not fit into {}: the smallest that can is {}M", request_.model,
                            FormatSize(Most()), mib));
  }

 private:
  static std::vector<MenuEntry> EntriesOf(const std::vector<Evaluated>& all) {
    std::vector<MenuEntry> entries;
    for (const Evaluated& one : all) entries.push_back(one.entry);
    return entries;
  }

  MenuLimits Limits(uint64_t limit_bytes) const {
    return {.most_threads = static_cast<int>(request_.cores.size()), .most_bytes = limit_bytes};
  }

  EnginePlan Limited(EngineOptions options, uint64_t limit_bytes) const {
    options.memory_bytes = limit_bytes;
    return PlanEngine(file_, options);
  }

  EnginePlan PlanOfSetting(const Setting& setting) const {
    EngineOptions options = request_.engine;
    options.threads = setting.threads;
    options.streaming.pinned_share = kSplits[setting.split];
    if (setting.strategy == IoStrategy::kHalves) {
      options.streaming.pipeline.pipeline = PipelineKind::kMatrix;
    }
    options.streaming.may_hold_gates = setting.strategy != IoStrategy::kSequential;
    EnginePlan plan = Limited(options, setting.limit_bytes);
    DescribeWeights(plan.load);
    return plan;
  }

  // How a model is read that does not fit.
  std::vector<IoStrategy> StrategiesOf(const EnginePlan& plan) const {
    if (!plan.is_streamed()) return {IoStrategy::kNone};
    if (plan.matrices && plan.load.spec.layers.front().ffn.num_experts > 0) {
      throw Error(ErrorCode::kUnsupported, request_.model,
                  "which experts its tokens need is not recorded yet: a mixture that does not fit "
                  "can be planned once it is packed");
    }
    const bool reads_all = plan.matrices || plan.mode == FfnMode::kDense ||
                           (plan.mode == FfnMode::kGated && !plan.neurons.holds_gates);
    if (reads_all) return {IoStrategy::kSequential};
    if (plan.neurons.holds_gates) return {IoStrategy::kWhole, IoStrategy::kSequential};
    return {IoStrategy::kWhole, IoStrategy::kHalves};
  }

  std::vector<Evaluated> Evaluate(uint64_t limit_bytes) {
    std::vector<Evaluated> all;
    for (int threads = 1; threads <= static_cast<int>(request_.cores.size()); ++threads) {
      for (size_t split = 0; split < kSplits.size(); ++split) {
        const Setting any = {limit_bytes, threads, IoStrategy::kNone, split};
        const EnginePlan plan = PlanOfSetting(any);
        if (plan.needed_bytes() > limit_bytes) continue;
        for (const IoStrategy strategy : StrategiesOf(plan)) {
          Setting setting = any;
          setting.strategy = strategy;
          all.push_back(EvaluateOne(PlanOfSetting(setting), setting));
        }
        if (!plan.bundles) break;  // nothing to split
      }
    }
    return all;
  }

  Evaluated EvaluateOne(const EnginePlan& plan, const Setting& setting) {
    const MissReplay* replay = setting.reads_neurons() ? ReplayOf(plan, setting) : nullptr;
    Evaluated one{
        .setting = setting, .entry = {}, .cost = CostOfToken(InputsOf(plan, setting, replay))};
    one.entry = {
        .threads = setting.threads,
        .strategy = static_cast<int>(setting.strategy),
        .split = static_cast<int>(setting.split),
        .token_us = std::max<uint64_t>(1, static_cast<uint64_t>(1000 * one.cost.time.token_ms)),
        .bytes = plan.needed_bytes()};
    return one;
  }

  CostInputs InputsOf(const EnginePlan& plan, const Setting& setting,
                      const MissReplay* replay) const {
    FfnActivity activity;
    if (accesses_ != nullptr) activity = accesses_->activity;
    if (accesses_ == nullptr && plan.load.is_packed) {
      const auto& rows = plan.load.weights->layers.front().gate_rows;
      activity.gate = activity.up = activity.down =
          static_cast<double>(rows.rows * plan.load.spec.num_layers);
    }
    if (plan.mode == FfnMode::kPredicted) activity.predictors = plan.load.predictors.get();
    return {.plan = plan,
            .hardware = hardware_,
            .threads = setting.threads,
            .context = std::min(kPlannedContext, plan.limits.max_context - 1),
            .activity = activity,
            .strategy = setting.strategy,
            .replay = replay};
  }

  // The same for every number of threads: what neurons find is a matter of memory.
  const MissReplay* ReplayOf(const EnginePlan& plan, const Setting& setting) {
    const auto [found, is_new] = replays_.try_emplace({setting.limit_bytes, setting.split});
    if (is_new) {
      found->second = ReplayMisses(accesses_->lists, plan.bundles->shape, plan.neurons,
                                   request_.engine.streaming.pipeline.cache_policy(),
                                   accesses_->tokens / kWarmUpPart);
    }
    return &found->second;
  }

  // Between a budget that is enough and the one before it on the menu.
  Evaluated Narrow(Evaluated enough, double tok_s, uint64_t smallest, uint64_t step) {
    uint64_t high = enough.setting.limit_bytes;
    uint64_t low = std::max(smallest, high > step ? high - step : 0);
    for (int i = 0; i < kHalvings && high > low + (uint64_t{8} << 20); ++i) {
      const uint64_t middle = low + (high - low) / 2;
      const auto fastest = FastestAt(middle);
      if (fastest && fastest->cost.tok_s() >= tok_s) {
        high = middle;
        enough = *fastest;
      } else {
        low = middle;
      }
    }
    return enough;
  }

  [[noreturn]] void RefuseSpeed(double tok_s, uint64_t most) {
    const auto best = FastestAt(most);
    if (!best) RefuseMemory();
    const uint64_t resident = ResidentLimit();
    const auto all = most < resident ? FastestAt(resident) : best;
    std::string more = "no memory would make it that fast here";
    if (all && all->cost.tok_s() >= tok_s) {
      more = fmt::format("with all {} of it in memory it decodes at {:.1f}", FormatSize(resident),
                         all->cost.tok_s());
    }
    throw Error(ErrorCode::kOutOfBudget, "--min-speed",
                fmt::format("{:.1f} tok/s cannot be had within {}: the fastest is {:.1f} tok/s; {}",
                            tok_s, FormatSize(most), best->cost.tok_s(), more));
  }

  const PlanRequest& request_;
  const HardwareProfile& hardware_;
  const AccessRecord* accesses_;
  const GgufFile file_;
  std::map<uint64_t, std::vector<Evaluated>> evaluated_;
  std::map<std::pair<uint64_t, size_t>, MissReplay> replays_;
};

ExecutionPlan Planner::PlanOf(const Evaluated& chosen) const {
  const EnginePlan engine = PlanOfSetting(chosen.setting);
  const auto replay = replays_.find({chosen.setting.limit_bytes, chosen.setting.split});
  const MissReplay* misses = chosen.setting.reads_neurons() ? &replay->second : nullptr;
  const CostInputs inputs = InputsOf(engine, chosen.setting, misses);
  const FfnSpec& ffn = engine.load.spec.layers.front().ffn;
  ExecutionPlan plan;
  plan.model_hash = fmt::format("{:016x}", ModelHash(file_));
  plan.hardware_hash = hardware_.MachineHash();
  plan.decode_tok_s = chosen.cost.tok_s();
  plan.prefill_tok_s = PromptTokensPerSecond(inputs, kPlannedPrompt);
  plan.bound = chosen.cost.bound();
  plan.time = chosen.cost.time;
  plan.miss_rate = inputs.replay != nullptr ? inputs.replay->miss_rate() : 0;
  plan.bytes_read_per_token = static_cast<uint64_t>(chosen.cost.bytes_read);
  plan.budget_bytes = chosen.setting.limit_bytes;
  plan.ledger = engine.ledger;
  plan.compute_cores.assign(request_.cores.begin(),
                            request_.cores.begin() + chosen.setting.threads);
  plan.io_strategy = IoStrategyName(chosen.setting.strategy);
  if (engine.is_streamed()) {
    plan.io_backend = hardware_.storage.backend;
    plan.cache_policy = CachePolicyName(request_.engine.streaming.pipeline.cache_policy());
  }
  plan.mode = FfnModeName(engine.mode);
  plan.num_layers = engine.load.spec.num_layers;
  plan.neurons = ffn.intermediate_size;
  if (engine.bundles) plan.stream = engine.neurons;
  plan.kv_dtype = engine.limits.kv_dtype == DType::kF32 ? "f32" : "f16";
  plan.context = engine.limits.max_context;
  return plan;
}

std::optional<double> SpeedAt(Planner& planner, uint64_t limit_bytes, double unless) {
  const auto fastest = planner.FastestAt(limit_bytes);
  if (!fastest || fastest->cost.tok_s() == unless) return std::nullopt;
  return fastest->cost.tok_s();
}

}  // namespace

std::optional<FfnMode> SparseModeOf(const GgufFile& file, std::optional<FfnMode> wanted) {
  const LoadPlan load = PlanLoad(file);
  const FfnMode mode = ResolveMode(file, load, wanted);
  if (!load.is_packed || mode == FfnMode::kDense) return std::nullopt;
  return mode;
}

PlannedRun MakePlan(const PlanRequest& request, const HardwareProfile& hardware,
                    const AccessRecord* accesses) {
  Planner planner(request, hardware, accesses);
  PlannedRun run;
  if (request.least_tok_s) {
    run.plan = planner.PlanOf(planner.LeastMemory(*request.least_tok_s));
  } else {
    const auto fastest = planner.FastestAt(planner.Most());
    if (!fastest) planner.RefuseMemory();
    run.plan = planner.PlanOf(*fastest);
  }
  const uint64_t budget = run.plan.budget_bytes;
  const double speed = run.plan.decode_tok_s;
  run.tok_s_with_more = SpeedAt(planner, budget + kOneGib, speed);
  if (budget > kOneGib) run.tok_s_with_less = SpeedAt(planner, budget - kOneGib, speed);
  return run;
}

}  // namespace hearth
