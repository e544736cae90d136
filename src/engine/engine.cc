#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/units.h"
#include "engine/ffn_mode.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

// Left to the rest of the machine where the user sets no limit.
constexpr uint64_t kDefaultMarginBytes = uint64_t{256} << 20;
// Stacks, allocator slack and small containers that no ledger entry names one by one.
constexpr uint64_t kUnnamedBytes = uint64_t{8} << 20;
// The program's resident size differs by some hundred KiB from run to run (shared pages, address
// layout). A budget that is named as sufficient must still be in the next run.
constexpr uint64_t kProgramDriftBytes = uint64_t{2} << 20;

int64_t ChooseContext(const EngineOptions& options, const ModelSpec& spec,
                      const std::string& path) {
  if (options.context < 0) {
    throw Error(ErrorCode::kInvalidArgument, "--ctx", "tokens", "at least 1",
                std::to_string(options.context));
  }
  if (options.context == 0) return std::min(spec.context_length, Engine::kDefaultContext);
  if (options.context > spec.context_length) {
    throw Error(ErrorCode::kInvalidArgument, "--ctx",
                fmt::format("{} was made for at most {} tokens", path, spec.context_length),
                fmt::format("at most {}", spec.context_length), std::to_string(options.context));
  }
  return options.context;
}

ForwardLimits ChooseLimits(const EngineOptions& options, const LoadPlan& plan,
                           const std::string& path) {
  ForwardLimits limits;
  limits.max_context = ChooseContext(options, plan.spec, path);
  limits.max_tokens = std::min(options.batch_tokens, limits.max_context);
  limits.kv_dtype = options.kv_dtype;
  limits.ffn_of_neurons = plan.is_packed;
  return limits;
}

// What the user allows, or what is free, less a margin.
uint64_t LimitBytes(const EngineOptions& options) {
  if (options.memory_bytes) return *options.memory_bytes;
  const uint64_t available = AvailableMemoryBytes();
  return ResidentBytes() + (available > kDefaultMarginBytes ? available - kDefaultMarginBytes : 0);
}

// What a model that is in memory as a whole takes, by name.
std::map<std::string, uint64_t> LedgerFor(const LoadPlan& plan, const ForwardLimits& limits,
                                          FfnMode mode, int threads, uint64_t program_bytes) {
  const KvLayout layout = Forward::LayoutFor(plan.spec, limits.kv_dtype);
  const uint64_t selector =
      mode == FfnMode::kPredicted
          ? PredictorSelector::ChargedBytes(plan.spec, plan.predictors->spec, limits.max_tokens)
          : 0;
  return {{"program", program_bytes + kUnnamedBytes},
          {"weights", Buffer::ChargedBytes(plan.weights_bytes)},
          {"kv cache", KvPool::ChargedBytes(layout, limits.max_context)},
          {"activations", Forward::ChargedBytes(plan.spec, limits, threads) + selector}};
}

// Of tables that say where pages lie, 8 bytes for each; a memory cgroup counts them too.
uint64_t PageTableBytes(uint64_t bytes) { return bytes / 512 + (uint64_t{64} << 10); }

uint64_t Sum(const std::map<std::string, uint64_t>& ledger) {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : ledger) sum += bytes;
  return sum;
}

void CheckBudget(const std::map<std::string, uint64_t>& ledger, uint64_t limit_bytes,
                 bool limit_is_users, const std::string& path) {
  const uint64_t needed = Sum(ledger);
  if (needed <= limit_bytes) return;
  std::string parts;
  for (const auto& [name, bytes] : ledger) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, FormatSize(bytes));
  }
  const uint64_t mib = (needed + kProgramDriftBytes + (uint64_t{1} << 20) - 1) >> 20;
  throw Error(ErrorCode::kOutOfBudget, limit_is_users ? "--memory" : "memory",
              fmt::format("{} does not fit into {}: the smallest that can is {}M ({}); a smaller "
                          "--ctx needs less",
                          path, FormatSize(limit_bytes), mib, parts));
}

// Shares out what the ledger leaves of the limit; where that is too little, the ledger says what
// would do.
template <typename Streamed>
auto PlanStreaming(const Streamed& ffns, uint64_t limit_bytes, const StreamingOptions& options,
                   std::map<std::string, uint64_t>& ledger)
    -> decltype(ffns.PlanFor(uint64_t{0}, options)) {
  const uint64_t taken = Sum(ledger);
  const uint64_t smallest = ffns.SmallestBytes(options);
  if (taken + smallest > limit_bytes) {
    ledger["streamed FFNs"] = smallest;  // which the check of the ledger refuses
    return {};
  }
  const uint64_t room = limit_bytes - taken;
  const auto plan = ffns.PlanFor(
      room > smallest + kProgramDriftBytes ? room - kProgramDriftBytes : smallest, options);
  ffns.AddTo(ledger, plan, options);
  return plan;
}

}  // namespace

// FFNs that do not all fit: of a packed model or of another one; neither where they do.
struct Engine::StreamedPart {
  std::optional<StreamedBundles> bundles;
  StreamPlan neurons;
  std::optional<StreamedFfnMatrices> matrices;
  ExtentPlan extents;

  // Takes the FFNs out of `plan`, and shares out what `ledger` leaves of the limit.
  StreamedPart(LoadPlan& plan, const GgufFile& file, FfnMode mode, uint64_t limit_bytes,
               const StreamingOptions& options, std::map<std::string, uint64_t>& ledger) {
    if (plan.is_packed) {
      bundles = StreamedBundles::TakeFrom(plan, file, mode);
    } else {
      matrices = StreamedFfnMatrices::TakeFrom(plan, file);
    }
    ledger["weights"] = Buffer::ChargedBytes(plan.weights_bytes);
    if (bundles) neurons = PlanStreaming(*bundles, limit_bytes, options, ledger);
    if (matrices) extents = PlanStreaming(*matrices, limit_bytes, options, ledger);
  }
};

void Engine::OpenStreamed(const std::string& path, const StreamedPart& part,
                          const StreamingOptions& options, const ProgressFn& progress) {
  if (part.bundles) {
    streamed_ = part.bundles->Open(path, budget_, part.neurons, options);
    streamed_->Fill(compute_, progress);
  } else {
    matrices_ = part.matrices->Open(budget_, part.extents, options);
    matrices_->Fill(compute_, progress);
  }
}

std::optional<double> Engine::ProbeStorage(double seconds) {
  if (streamed_) return streamed_->ProbeReads(seconds);
  if (matrices_) return matrices_->ProbeReads(seconds);
  return std::nullopt;
}

std::unique_ptr<Engine> Engine::Load(const std::string& path, const EngineOptions& options,
                                     const ProgressFn& progress) {
  const int threads = options.threads == 0 ? AvailableCpus() : options.threads;
  const uint64_t limit = LimitBytes(options);
  std::unique_ptr<Engine> engine(new Engine(limit, options, threads));

  const GgufFile file = GgufFile::Open(path);
  LoadPlan plan = PlanLoad(file);
  if (!options.silu_thresholds.empty()) ThresholdSilu(options.silu_thresholds, &plan.spec);
  plan.drop_page_cache = options.memory_bytes.has_value();
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file.metadata());
  const ForwardLimits limits = ChooseLimits(options, plan, path);
  const FfnMode mode = ResolveMode(file, plan, options.mode);

  std::map<std::string, uint64_t>& ledger = engine->planned_ledger_;
  ledger = LedgerFor(plan, limits, mode, threads, options.program_bytes.value_or(ResidentBytes()));
  ledger["page tables"] = PageTableBytes(Sum(ledger));
  std::optional<StreamedPart> streamed;
  if (options.may_stream && Sum(ledger) > limit) {
    streamed.emplace(plan, file, mode, limit, options.streaming, ledger);
  }
  CheckBudget(ledger, limit, options.memory_bytes.has_value(), path);
  engine->program_ = engine->budget_.Charge("program", ledger["program"]);
  engine->page_tables_ = engine->budget_.Charge("page tables", ledger["page tables"]);
  engine->model_ = Model::Load(file, std::move(plan), std::move(tokenizer), engine->budget_,
                               engine->compute_, progress);
  if (streamed) engine->OpenStreamed(path, *streamed, options.streaming, progress);
  const KvLayout layout = Forward::LayoutFor(engine->model_->spec(), limits.kv_dtype);
  engine->kv_pool_ = std::make_unique<KvPool>(engine->budget_, layout, limits.max_context);
  engine->forward_ = std::make_unique<Forward>(
      engine->model_->spec(), engine->model_->weights(), engine->compute_, engine->budget_, limits,
      StreamedWeights{engine->streamed_.get(), engine->matrices_.get()});
  if (mode == FfnMode::kPredicted) {
    engine->selector_ =
        std::make_unique<PredictorSelector>(engine->model_->spec(), *engine->model_->predictors(),
                                            engine->compute_, engine->budget_, limits.max_tokens);
  } else {
    engine->selector_ = std::make_unique<DenseSelector>(mode);
  }
  return engine;
}

}  // namespace hearth
