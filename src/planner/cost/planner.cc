#include "planner/cost/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "cache/cache_policy.h"
#include "engine/load/engine_plan.h"
#include "engine/load/ffn_mode.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "planner/cost/cluster_choice.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/kv_spill.h"
#include "planner/cost/plan_menu.h"
#include "planner/cost/plan_settings.h"
#include "planner/cost/replays.h"

namespace hearth {
namespace {

// An execution plan has memory for all KV pages.
EngineOptions WithKvInMemory(EngineOptions options) {
  options.may_spill_kv = false;
  return options;
}

constexpr std::array kSplits = {0.0, 0.25, 0.5, 0.75};
// Tokens in the KV cache when a token's time is told, and of the prompt whose speed is.
constexpr int64_t kPlannedContext = 64;
constexpr int64_t kPlannedPrompt = 128;
constexpr uint64_t kOneGib = uint64_t{1} << 30;
// Budgets that are tried for a speed, and how often the gap between two is halved.
constexpr int kBudgets = 9;
constexpr int kHalvings = 6;
// Where it still is not enough, memory grows by this part of the distance between two such budgets,
// then by twice as much, and so on.
constexpr uint64_t kLittleSteps = 16;

// A setting of one budget.
struct Setting {
  uint64_t limit_bytes = 0;
  std::vector<int> cores;  // that compute, ascending
  IoStrategy strategy = IoStrategy::kNone;
  size_t split = 0;
  std::optional<int> io_core = {};  // the one of `cores` that only reads; nothing: all do both

  int threads() const { return static_cast<int>(cores.size()); }
  // What a token asks for, and nothing else.
  bool reads_listed() const {
    return strategy != IoStrategy::kNone && strategy != IoStrategy::kSequential;
  }
};

struct Evaluated {
  Setting setting;
  MenuEntry entry;
  TokenCost cost;
};

// What tokens ask of the processor, where a device takes a part of it.
std::optional<AccessRecord> BesideDeviceOf(const PlanRequest& request, const GgufFile& file,
                                           const AccessRecord* accesses) {
  if (accesses == nullptr) return std::nullopt;
  if (request.matrices) return BesideMatrices(*accesses, request.matrices->planned.matrices);
  if (!request.device) return std::nullopt;
  const FfnMode mode = ResolveMode(file, PlanLoad(file), request.engine.mode);
  return BesideDevice(*accesses, mode, request.device->planned.layer_neurons);
}

OnDevice OnDeviceOf(const PlanRequest& request) {
  if (request.matrices) return {.matrices = &request.matrices->planned.matrices};
  if (request.device) {
    const PlannedDevice& planned = request.device->planned;
    return {.neurons = planned.layer_neurons,
            .matrices = planned.matrices.layers.empty() ? nullptr : &planned.matrices};
  }
  return {};
}

// For the menu: whole numbers, of whatever a profile leads to.
uint64_t Microseconds(double seconds) {
  constexpr double kMost = 1e15;
  return static_cast<uint64_t>(seconds < kMost / 1e6 ? std::max(1.0, 1e6 * seconds) : kMost);
}

class Planner {
 public:
  Planner(const PlanRequest& request, const HardwareProfile& hardware, const AccessRecord* accesses)
      : request_(request),
        hardware_(hardware),
        file_(OpenModel(request.model, request.engine.activation)),
        beside_(BesideDeviceOf(request, file_, accesses)),
        accesses_(beside_ ? &*beside_ : accesses),
        replays_(accesses_, request.engine.streaming.pipeline) {
    if (request.device) {
      device_load_ = accesses != nullptr
                         ? LoadOf(*accesses, DeviceNeurons())
                         : FullLoad(MainFfn(ReadModelSpec(file_)).intermediate_size,
                                    request.device->experts_per_token, DeviceNeurons());
    }
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
    EngineOptions options = request_.engine;
    options.threads = 1;  // others have activations of their own
    return Limited(options, 1).needed_bytes() + (uint64_t{4} << 20);
  }

  // All settings within a budget; none where the model cannot run in it.
  const std::vector<Evaluated>& At(uint64_t limit_bytes) {
    const auto [found, is_new] = evaluated_.try_emplace(limit_bytes);
    if (is_new) found->second = Evaluate(limit_bytes, CoreSets(hardware_, request_.cores));
    return found->second;
  }

  // Whether any setting fits, which takes no record to know.
  bool AnyFits() const {
    return PlanOfSetting({Most(), {request_.cores.front()}}).needed_bytes() <= Most();
  }

  // The fastest of them.
  std::optional<Evaluated> FastestAt(uint64_t limit_bytes) {
    const std::vector<Evaluated>& all = At(limit_bytes);
    const auto chosen = Choose(all, Limits(limit_bytes), MenuGoal::kFastest);
    if (!chosen) return std::nullopt;
    return all[*chosen];
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
    const auto chosen = Choose(all, Limits(Most(), tok_s), MenuGoal::kLeastMemory);
    if (!chosen) RefuseSpeed(tok_s, most);
    const uint64_t step = most > smallest ? (most - smallest) / (kBudgets - 1) : 0;
    const uint64_t enough = Narrow(all[*chosen].setting.limit_bytes, tok_s, smallest, step);
    return LeastThatIsTold(enough, most, step, tok_s);
  }

  std::optional<int64_t> HiddenTokens(const Evaluated& chosen);
  ExecutionPlan PlanOf(const Evaluated& chosen);

  uint64_t Most() const { return request_.engine.memory_bytes.value_or(DefaultLimitBytes()); }

  [[noreturn]] void RefuseMemory() const {
    const uint64_t mib = (SmallestLimit() >> 20) + 1;
    throw Error(ErrorCode::kOutOfBudget, Field{"memory"},
                fmt::format("{} does not fit into {}: the smallest that can is {}M", request_.model,
                            FormatSize(Most()), mib));
  }

 private:
  std::span<const int64_t> DeviceNeurons() const {
    return request_.device ? std::span<const int64_t>(request_.device->planned.layer_neurons)
                           : std::span<const int64_t>();
  }

  static std::vector<MenuEntry> MenuOf(const std::vector<Evaluated>& all) {
    std::vector<MenuEntry> menu;
    for (const Evaluated& one : all) menu.push_back(one.entry);
    return menu;
  }

  std::optional<size_t> Choose(const std::vector<Evaluated>& all, const MenuLimits& limits,
                               MenuGoal goal) const {
    return (request_.uses_solver ? SolveMenu : SearchMenu)(MenuOf(all), limits, goal);
  }

  MenuLimits Limits(uint64_t limit_bytes, std::optional<double> tok_s = {}) const {
    MenuLimits limits = {.most_threads = static_cast<int>(request_.cores.size()),
                         .most_bytes = limit_bytes};
    if (tok_s) limits.most_token_us = static_cast<uint64_t>(1e6 / *tok_s);
    return limits;
  }

  EnginePlan Limited(EngineOptions options, uint64_t limit_bytes) const {
    options.memory_bytes = limit_bytes;
    return PlanEngine(file_, WithKvInMemory(options), OnDeviceOf(request_));
  }

  EnginePlan PlanOfSetting(const Setting& setting) const {
    EngineOptions options = request_.engine;
    options.threads = setting.threads();
    options.streaming.pinned_share = kSplits[setting.split];
    if (ReadsHalves(setting.strategy)) options.streaming.pipeline.gates_first = true;
    if (ReadsPieces(setting.strategy)) options.streaming.pipeline.piece_bytes = kNeuronPieceBytes;
    options.streaming.holds_gates = setting.strategy != IoStrategy::kSequential;
    EnginePlan plan = Limited(options, setting.limit_bytes);
    DescribeWeights(plan.load);
    return plan;
  }

  std::vector<Evaluated> Evaluate(uint64_t limit_bytes, const std::vector<std::vector<int>>& sets) {
    if (accesses_ != nullptr) ReplayAllSplits(limit_bytes, sets);
    std::vector<Evaluated> all;
    for (const std::vector<int>& cores : sets) {
      for (size_t split = 0; split < kSplits.size(); ++split) {
        const Setting any = {limit_bytes, cores, IoStrategy::kNone, split};
        const EnginePlan plan = PlanOfSetting(any);
        if (plan.needed_bytes() > limit_bytes) continue;
        for (const IoStrategy strategy : StrategiesOf(plan, accesses_ != nullptr)) {
          Setting setting = any;
          setting.strategy = strategy;
          all.push_back(EvaluateOne(PlanOfSetting(setting), setting));
          AddWithIoCore(plan, setting, all);
        }
        if (!plan.bundles) break;  // nothing to split
      }
    }
    return all;
  }

  // Adds the last setting again with one processor that only reads, where that is faster by more
  // than measurements vary.
  void AddWithIoCore(const EnginePlan& plan, Setting setting, std::vector<Evaluated>& all) {
    const bool is_cluster = request_.engine.streaming.pipeline.pipeline == PipelineKind::kCluster;
    if (!plan.bundles || !setting.reads_listed() || setting.threads() < 2 || !is_cluster) return;
    setting.io_core = hardware_.FastestReader(setting.cores);
    Evaluated one = EvaluateOne(PlanOfSetting(setting), setting);
    if (100 * one.entry.token_us < 99 * all.back().entry.token_us) all.push_back(std::move(one));
  }

  // What takes the time of planning: the replays of a budget, at once.
  void ReplayAllSplits(uint64_t limit_bytes, const std::vector<std::vector<int>>& sets) {
    std::vector<EnginePlan> plans;
    for (const std::vector<int>& cores : sets) {
      for (size_t split = 0; split < kSplits.size(); ++split) {
        EnginePlan plan = PlanOfSetting({limit_bytes, cores, IoStrategy::kWhole, split});
        if (plan.bundles && plan.needed_bytes() <= limit_bytes) plans.push_back(std::move(plan));
      }
    }
    replays_.MakeToCompare(plans);
  }

  Evaluated EvaluateOne(const EnginePlan& plan, const Setting& setting) {
    const MissReplay* replay = setting.reads_listed() ? replays_.ToCompare(plan) : nullptr;
    const CostInputs inputs = InputsOf(plan, setting, replay);
    Evaluated one{.setting = setting, .entry = {}, .cost = CostWithDevice(inputs)};
    one.entry = {.threads = setting.threads(),
                 .strategy = static_cast<int>(setting.strategy),
                 .split = static_cast<int>(setting.split),
                 .token_us = Microseconds(one.cost.time.token_ms / 1000),
                 .prompt_us = Microseconds(SecondsOfPromptToken(inputs)),
                 .bytes = plan.needed_bytes(),
                 .io_thread = static_cast<int>(setting.io_core.has_value())};
    return one;
  }

  TokenCost CostWithDevice(const CostInputs& inputs) const {
    TokenCost cost = CostOfToken(inputs);
    if (request_.device) AddDevice(*request_.device, device_load_, inputs.plan.mode, cost);
    if (request_.matrices) AddMatrices(*request_.matrices, cost);
    return cost;
  }

  // Both sides compute a prompt at the same time.
  double SecondsOfPromptToken(const CostInputs& inputs) const {
    const double here = 1 / PromptTokensPerSecond(inputs, kPlannedPrompt);
    return request_.device ? std::max(here, PromptSecondsOnDevice(*request_.device)) : here;
  }

  CostInputs InputsOf(const EnginePlan& plan, const Setting& setting,
                      const MissReplay* replay) const {
    FfnActivity activity;
    if (accesses_ != nullptr) activity = accesses_->activity;
    if (accesses_ == nullptr && plan.load.is_packed) {
      activity = AllNeurons(plan.load);
    }
    if (plan.mode == FfnMode::kPredicted) activity.predictors = plan.load.predictors.get();
    if (request_.matrices) activity.experts_here = request_.matrices->experts_here;
    return {.plan = plan,
            .hardware = hardware_,
            .cores = setting.cores,
            .io_core = setting.io_core,
            .context = std::min(kPlannedContext, plan.limits.max_context - 1),
            .activity = activity,
            .strategy = setting.strategy,
            .replay = replay,
            .merge_gap_bytes = request_.engine.streaming.pipeline.merge_gap_bytes};
  }

  // Between a budget that is enough and the one before it on the menu: the least that is enough.
  uint64_t Narrow(uint64_t enough, double tok_s, uint64_t smallest, uint64_t step) {
    uint64_t high = enough;
    uint64_t low = std::max(smallest, high > step ? high - step : 0);
    for (int i = 0; i < kHalvings && high > low + (uint64_t{8} << 20); ++i) {
      const uint64_t middle = low + (high - low) / 2;
      const auto fastest = FastestAt(middle);
      if (fastest && fastest->cost.tok_s() >= tok_s) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return high;
  }

  // Settings are compared by what some layers do, and chosen ones told of by what more of them do:
  // where that is less, with a little more memory.
  Evaluated LeastThatIsTold(uint64_t limit_bytes, uint64_t most, uint64_t step, double tok_s) {
    uint64_t more = std::max(step / kLittleSteps, uint64_t{1} << 20);
    for (;; more *= 2) {
      const auto fastest = FastestAt(limit_bytes);
      if (fastest && PlanOf(*fastest).decode_tok_s >= tok_s) return *fastest;
      if (limit_bytes >= most) RefuseSpeed(tok_s, most);
      limit_bytes += std::min(more, most - limit_bytes);
    }
  }

  [[noreturn]] void RefuseSpeed(double tok_s, uint64_t most) {
    const auto best = FastestAt(most);
    if (!best) RefuseMemory();
    throw Error(ErrorCode::kOutOfBudget, Field{"min_speed"},
                fmt::format("{:.1f} tok/s cannot be had within {}: the fastest is {:.1f} tok/s; {}",
                            tok_s, FormatSize(most), best->cost.tok_s(), ConflictText(tok_s)));
  }

  // Which of the user's wishes contradict each other, and what each of them costs: of a menu that
  // also has more memory and all measured processors.
  std::string ConflictText(double tok_s) {
    std::vector<int> cores = request_.cores;
    for (const CoreSpeed& core : hardware_.cores) {
      if (std::find(cores.begin(), cores.end(), core.cpu) == cores.end()) cores.push_back(core.cpu);
    }
    std::vector<std::vector<int>> sets = CoreSets(hardware_, request_.cores);
    for (std::vector<int>& more : CoreSets(hardware_, cores)) {
      if (more.size() > request_.cores.size()) sets.push_back(std::move(more));
    }
    std::vector<Evaluated> all;
    const std::array limits = {Most(), std::max(Most(), ResidentLimit())};
    for (size_t i = 0; i < limits.size(); ++i) {
      for (Evaluated one : Evaluate(limits[i], sets)) {
        one.entry.budget = static_cast<int>(i);
        all.push_back(one);
      }
    }
    const MenuLimits wishes = Limits(Most(), tok_s);
    std::string others, instead;
    for (const MenuLimit limit :
         (request_.uses_solver ? SolveConflict : SearchConflict)(MenuOf(all), wishes)) {
      MenuLimits without = wishes;
      if (limit == MenuLimit::kSpeed) continue;
      if (limit == MenuLimit::kThreads) without.most_threads.reset();
      if (limit == MenuLimit::kMemory) without.most_bytes.reset();
      const Evaluated& one = all[Choose(all, without, MenuGoal::kLeastMemory).value()];
      const bool is_memory = limit == MenuLimit::kMemory;
      others += std::string(others.empty() ? "" : ", ") + (is_memory ? "memory" : "processors");
      instead += std::string(instead.empty() ? "" : ", ");
      instead += is_memory ? fmt::format("with all {} of it in memory", FormatSize(ResidentLimit()))
                           : fmt::format("on {} processors", one.setting.threads());
      instead += fmt::format(" it decodes at {:.1f}", one.cost.tok_s());
    }
    if (others.empty()) return "no memory would make it that fast here";
    return fmt::format("the wishes for {} and speed contradict each other: {}", others, instead);
  }

  const PlanRequest& request_;
  const HardwareProfile& hardware_;
  const GgufFile file_;
  const std::optional<AccessRecord> beside_;
  const AccessRecord* const accesses_;  // of the processor
  DeviceLoad device_load_;
  std::map<uint64_t, std::vector<Evaluated>> evaluated_;
  Replays replays_;
};

std::optional<int64_t> Planner::HiddenTokens(const Evaluated& chosen) {
  if (chosen.setting.strategy != IoStrategy::kNone) return std::nullopt;
  const EnginePlan engine = PlanOfSetting(chosen.setting);
  return HiddenKvTokens(InputsOf(engine, chosen.setting, nullptr), kPlannedContext);
}

ExecutionPlan Planner::PlanOf(const Evaluated& chosen) {
  const EnginePlan engine = PlanOfSetting(chosen.setting);
  const MissReplay* misses = chosen.setting.reads_listed() ? replays_.ToTell(engine) : nullptr;
  const CostInputs inputs = InputsOf(engine, chosen.setting, misses);
  const TokenCost cost = CostWithDevice(inputs);
  const FfnSpec& ffn = MainFfn(engine.load.spec);
  ExecutionPlan plan;
  plan.model_hash = fmt::format("{:016x}", ModelHash(file_));
  plan.hardware_hash = hardware_.MachineHash();
  plan.decode_tok_s = cost.tok_s();
  plan.prefill_tok_s = 1 / SecondsOfPromptToken(inputs);
  plan.bound = cost.bound();
  plan.time = cost.time;
  plan.miss_rate = inputs.replay != nullptr ? inputs.replay->miss_rate() : 0;
  plan.bytes_read_per_token = static_cast<uint64_t>(cost.bytes_read);
  plan.budget_bytes = chosen.setting.limit_bytes;
  plan.ledger = engine.ledger;
  plan.compute_cores = chosen.setting.cores;
  plan.io_core = chosen.setting.io_core;
  if (plan.io_core) std::erase(plan.compute_cores, *plan.io_core);
  plan.io_strategy = IoStrategyName(chosen.setting.strategy);
  if (engine.is_streamed()) {
    plan.io_backend = hardware_.storage.backend;
    plan.cache_policy = CachePolicyName(request_.engine.streaming.pipeline.cache_policy());
  }
  plan.mode = FfnModeName(engine.mode);
  plan.num_layers = engine.load.spec.num_layers;
  plan.neurons = ffn.intermediate_size;
  if (engine.bundles) {
    plan.stream = engine.neurons;
    plan.stream->clusters = ChooseClusters(
        hardware_, plan.compute_cores, engine.bundles->layout.stride, engine.neurons.queue_depth);
  }
  if (request_.device) plan.device = request_.device->planned;
  if (request_.matrices) plan.device = request_.matrices->planned;
  plan.kv_codec = InfoOf(engine.limits.kv_codec).name;
  plan.context = engine.limits.max_context;
  return plan;
}

// With other memory; nothing where that changes nothing, or the model cannot run in it.
std::optional<double> SpeedAt(Planner& planner, uint64_t limit_bytes, double planned_tok_s) {
  const auto fastest = planner.FastestAt(limit_bytes);
  if (!fastest) return std::nullopt;
  const double tok_s = planner.PlanOf(*fastest).decode_tok_s;
  return tok_s != planned_tok_s ? std::optional(tok_s) : std::nullopt;
}

}  // namespace

std::optional<FfnMode> RecordedModeOf(const GgufFile& file, const PlanRequest& request) {
  const LoadPlan load = PlanLoad(file);
  const FfnMode mode = ResolveMode(file, load, request.engine.mode);
  if (load.is_packed) return mode != FfnMode::kDense ? std::optional(mode) : std::nullopt;
  if (MainFfn(load.spec).num_experts == 0) return std::nullopt;
  const bool may_stream =
      request.matrices || request.least_tok_s ||
      PlanEngine(file, WithKvInMemory(request.engine), OnDeviceOf(request)).is_streamed();
  return may_stream ? std::optional(FfnMode::kDense) : std::nullopt;
}

void CheckPlanMemory(const PlanRequest& request, const HardwareProfile& hardware) {
  const Planner planner(request, hardware, nullptr);
  if (!planner.AnyFits()) planner.RefuseMemory();
}

PlannedRun MakePlan(const PlanRequest& request, const HardwareProfile& hardware,
                    const AccessRecord* accesses) {
  if (accesses == nullptr &&
      RecordedModeOf(OpenModel(request.model, request.engine.activation), request)) {
    throw Error(ErrorCode::kInvalidArgument, request.model,
                "a plan for it needs a record of what its tokens ask for");
  }
  Planner planner(request, hardware, accesses);
  std::optional<Evaluated> chosen;
  if (request.least_tok_s) {
    chosen = planner.LeastMemory(*request.least_tok_s);
  } else {
    chosen = planner.FastestAt(planner.Most());
    if (!chosen) planner.RefuseMemory();
  }
  PlannedRun run;
  run.plan = planner.PlanOf(*chosen);
  const uint64_t budget = run.plan.budget_bytes;
  const double speed = run.plan.decode_tok_s;
  run.hidden_kv_tokens = planner.HiddenTokens(*chosen);
  run.tok_s_with_more = SpeedAt(planner, budget + kOneGib, speed);
  if (budget > kOneGib) {
    run.tok_s_with_less = SpeedAt(planner, budget - kOneGib, speed);
  }
  return run;
}

}  // namespace hearth
