#include "engine/load/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/units.h"
#include "engine/load/ffn_mode.h"
#include "import/hugging_face.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

// Stacks, allocator slack and small containers that no ledger entry names one by one.
constexpr uint64_t kUnnamedBytes = uint64_t{8} << 20;
// Of a memory limit, one part in so many for sequences beside the first.
constexpr uint64_t kKvShare = 8;
// Memory that a byte of page tables is for: they have 8 bytes for each page.
constexpr uint64_t kBytesOfPageTable = 512;
// The program's resident size differs by some hundred KiB from run to run (shared pages, address
// layout). A budget that is named as sufficient must still be in the next run.
constexpr uint64_t kProgramDriftBytes = uint64_t{2} << 20;

int64_t ChooseContext(const EngineOptions& options, const ModelSpec& spec,
                      const std::string& path) {
  if (options.context < 0) {
    throw Error(ErrorCode::kInvalidArgument, Field{"context"}, "tokens", "at least 1",
                std::to_string(options.context));
  }
  if (options.context == 0) return std::min(spec.context_length, kDefaultContext);
  if (options.context > spec.context_length) {
    throw Error(ErrorCode::kInvalidArgument, Field{"context"},
                fmt::format("{} was made for at most {} tokens", path, spec.context_length),
                fmt::format("at most {}", spec.context_length), std::to_string(options.context));
  }
  return options.context;
}

std::vector<AdapterPlan> PlanAdapters(const EngineOptions& options, const LoadPlan& plan) {
  if (options.adapters.size() > kMostAdapters) {
    throw Error(ErrorCode::kInvalidArgument, Field{"adapters"}, "adapters",
                fmt::format("at most {}", kMostAdapters), std::to_string(options.adapters.size()));
  }
  std::vector<AdapterPlan> adapters;
  for (const AdapterOption& option : options.adapters) {
    adapters.push_back(PlanAdapter(option, plan.spec,
                                   plan.is_packed ? FfnStorage::kBundles : FfnStorage::kMatrices));
  }
  return adapters;
}

PassLimits ChooseLimits(const EngineOptions& options, const LoadPlan& plan,
                        std::span<const AdapterPlan> adapters, const std::string& path) {
  PassLimits limits;
  limits.max_context = ChooseContext(options, plan.spec, path);
  limits.max_tokens = std::min(options.batch_tokens, limits.max_context);
  limits.kv_codec = options.kv_codec;
  limits.ffn_of_neurons = plan.is_packed;
  for (const AdapterPlan& adapter : adapters) {
    limits.adapter_ranks = std::max(limits.adapter_ranks, adapter.widest_ranks);
  }
  limits.tokens_together = std::min(
      std::clamp<int64_t>(options.kv_sequences, 1, SparseBatch::kMostTokens), limits.max_tokens);
  return limits;
}

// Of all sequences that the KV cache is to hold at once.
int64_t ChooseKvTokens(const EngineOptions& options, const PassLimits& limits,
                       const ModelSpec& spec, uint64_t limit_bytes) {
  if (options.kv_sequences < 1) {
    throw Error(ErrorCode::kInvalidArgument, "kv cache", "sequences", "at least 1",
                std::to_string(options.kv_sequences));
  }
  const uint64_t page = KvLayoutFor(spec, limits.kv_codec).page_bytes();
  const int64_t wanted = KvLayout::PagesFor(limits.max_context) * options.kv_sequences;
  const auto affordable =
      static_cast<int64_t>(limit_bytes / kKvShare / std::max<uint64_t>(page, 1));
  return std::max(std::min(wanted, affordable) * KvLayout::kPageTokens, limits.max_context);
}

// What a model that is in memory as a whole takes, by name.
std::map<std::string, uint64_t> LedgerFor(const LoadPlan& plan, const PassLimits& limits,
                                          int64_t kv_tokens, FfnMode mode, int threads,
                                          uint64_t program_bytes) {
  const KvLayout layout = KvLayoutFor(plan.spec, limits.kv_codec);
  const uint64_t selector =
      mode == FfnMode::kPredicted
          ? PredictorSelector::ChargedBytes(plan.spec, plan.predictors->spec,
                                            TransformerPass::TokensOfQuery(limits),
                                            limits.tokens_together)
          : 0;
  return {{"program", program_bytes + kUnnamedBytes},
          {"weights", Buffer::ChargedBytes(plan.weights_bytes)},
          {"kv cache", KvPool::ChargedBytes(layout, kv_tokens)},
          {"activations", TransformerPass::ChargedBytes(plan.spec, limits, threads) + selector}};
}

// Of tables that say where pages lie; a memory cgroup counts them too.
uint64_t PageTableBytes(uint64_t bytes) { return bytes / kBytesOfPageTable + (uint64_t{64} << 10); }

uint64_t Sum(const std::map<std::string, uint64_t>& ledger) {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : ledger) sum += bytes;
  return sum;
}

// Gives back so many bytes of the KV cache, or what it has beside one context.
void ShrinkKv(uint64_t bytes, EnginePlan& plan) {
  const KvLayout layout = KvLayoutFor(plan.load.spec, plan.limits.kv_codec);
  const auto pages = static_cast<int64_t>(bytes / layout.page_bytes()) + 1;
  plan.kv_tokens =
      std::max(plan.kv_tokens - pages * KvLayout::kPageTokens, plan.limits.max_context);
  const uint64_t before =
      std::exchange(plan.ledger["kv cache"], KvPool::ChargedBytes(layout, plan.kv_tokens));
  plan.ledger["page tables"] -= (before - plan.ledger["kv cache"]) / kBytesOfPageTable;
}

// So that what is named as the smallest limit will do, however large a share of it the KV cache
// would like: room for as many bytes beside the ledger, where one context leaves it.
void LeaveRoom(uint64_t bytes, EnginePlan& plan) {
  while (plan.kv_tokens > plan.limits.max_context &&
         plan.needed_bytes() + bytes > plan.limit_bytes) {
    ShrinkKv(plan.needed_bytes() + bytes - plan.limit_bytes, plan);
  }
}

// The pages of the KV cache, whose memory the cache of a streamed model uses while they are free.
LentPages LentOf(const EnginePlan& plan) {
  return {.count = KvLayout::PagesFor(plan.kv_tokens),
          .page_bytes = KvLayoutFor(plan.load.spec, plan.limits.kv_codec).page_bytes()};
}

// Shares out what the ledger leaves of the limit; where that is too little, the ledger says what
// would do.
template <typename Streamed>
auto PlanStreaming(const Streamed& ffns, const StreamingOptions& options, EnginePlan& plan)
    -> decltype(ffns.PlanFor(uint64_t{0}, options)) {
  const uint64_t smallest = ffns.SmallestBytes(options);
  LeaveRoom(smallest, plan);
  const uint64_t taken = plan.needed_bytes();
  if (taken + smallest > plan.limit_bytes) {
    plan.ledger["streamed FFNs"] = smallest;  // which the check of the ledger refuses
    return {};
  }
  const uint64_t room = plan.limit_bytes - taken;
  auto shares = ffns.PlanFor(
      room > smallest + kProgramDriftBytes ? room - kProgramDriftBytes : smallest, options);
  shares.lent = LentOf(plan);
  ffns.AddTo(plan.ledger, shares, options);
  return shares;
}

// Neurons as an execution plan shares them out. Where they leave too little for requests together,
// slots of the cache are given up, at most half of them; then the KV cache has room for fewer.
void TakePlanned(const EngineOptions& options, EnginePlan& plan) {
  const StreamedBundles& bundles = *plan.bundles;
  plan.neurons = *options.neurons;
  plan.neurons.lent = LentOf(plan);
  CheckStreamPlan(bundles.shape, plan.neurons);
  // Negative where something is left.
  const auto missing = [&](int64_t cache_slots) {
    std::map<std::string, uint64_t> ledger = plan.ledger;
    StreamPlan neurons = plan.neurons;
    neurons.cache_slots = cache_slots;
    bundles.AddTo(ledger, neurons, options.streaming);
    return static_cast<int64_t>(Sum(ledger)) - static_cast<int64_t>(plan.limit_bytes);
  };
  const int64_t planned_slots = plan.neurons.cache_slots;
  if (options.cache_may_shrink && missing(planned_slots) > 0) {
    const int64_t fewest_slots = planned_slots - planned_slots / 2;
    if (const int64_t bytes = missing(fewest_slots); bytes > 0) {
      ShrinkKv(static_cast<uint64_t>(bytes), plan);
      plan.neurons.lent = LentOf(plan);
    }
    const auto slot = static_cast<int64_t>(plan.neurons.slot_bytes(bundles.shape));
    const int64_t bytes = std::max<int64_t>(missing(planned_slots), 0);
    plan.neurons.cache_slots = std::max(planned_slots - (bytes + slot - 1) / slot, fewest_slots);
  }
  bundles.AddTo(plan.ledger, plan.neurons, options.streaming);
  if (plan.needed_bytes() <= plan.limit_bytes) return;
  throw Error(ErrorCode::kOutOfBudget, "plan",
              options.cache_may_shrink ? "memory for requests together, beside half of its cache"
                                       : "memory for its neurons and the rest of the model",
              "at most " + FormatSize(plan.limit_bytes), FormatSize(plan.needed_bytes()));
}

// Takes the FFNs out of the plan, and shares out what the ledger leaves of the limit.
void StreamFfns(const GgufFile& file, const EngineOptions& options, EnginePlan& plan) {
  const bool is_packed = plan.load.is_packed;
  if (is_packed) {
    plan.bundles = StreamedBundles::TakeFrom(plan.load, file, plan.mode);
  } else {
    plan.matrices = StreamedFfnMatrices::TakeFrom(plan.load, file);
  }
  plan.ledger["weights"] = Buffer::ChargedBytes(plan.load.weights_bytes);
  if (!is_packed) {
    plan.extents = PlanStreaming(*plan.matrices, options.streaming, plan);
  } else if (options.neurons) {
    TakePlanned(options, plan);
  } else {
    plan.neurons = PlanStreaming(*plan.bundles, options.streaming, plan);
  }
}

}  // namespace

uint64_t DefaultLimitBytes() { return DefaultMemoryBytes(); }

uint64_t EnginePlan::needed_bytes() const { return Sum(ledger); }

EnginePlan PlanEngine(const GgufFile& file, const EngineOptions& options, int64_t device_neurons) {
  EnginePlan plan;
  plan.limit_bytes = options.memory_bytes.value_or(DefaultLimitBytes());
  plan.limit_is_users = options.memory_bytes.has_value();
  plan.threads = options.threads == 0 ? AvailableCpus() : options.threads;
  plan.load = PlanLoad(file);
  const int64_t all_neurons = MainFfn(plan.load.spec).intermediate_size;
  if (device_neurons > 0) LeaveToDevice(plan.load, device_neurons);
  if (!options.silu_thresholds.empty()) ThresholdSilu(options.silu_thresholds, &plan.load.spec);
  plan.load.drop_page_cache = plan.limit_is_users;
  plan.load.io = options.streaming.io;
  plan.adapters = PlanAdapters(options, plan.load);
  plan.limits = ChooseLimits(options, plan.load, plan.adapters, file.path());
  plan.limits.device_neurons = device_neurons;
  plan.mode = ResolveMode(file, plan.load, options.mode);
  plan.kv_tokens = ChooseKvTokens(options, plan.limits, plan.load.spec, plan.limit_bytes);
  plan.ledger = LedgerFor(plan.load, plan.limits, plan.kv_tokens, plan.mode, plan.threads,
                          options.program_bytes.value_or(ProgramBytes()));
  for (const AdapterPlan& adapter : plan.adapters) {
    plan.ledger["adapters"] += Buffer::ChargedBytes(adapter.bytes());
  }
  if (options.reserved_bytes > 0) plan.ledger["reserved"] = options.reserved_bytes;
  plan.ledger["page tables"] = PageTableBytes(plan.needed_bytes());
  if (options.neurons && !plan.load.is_packed) {
    throw Error(ErrorCode::kInvalidArgument, "plan", "it is about neurons of a packed file",
                "a packed file", file.path());
  }
  // An execution plan is obeyed also where the program takes less than it allowed for.
  const bool may_stream = options.may_stream && !IsModelFolder(file.path()) &&
                          device_neurons < all_neurons;  // else nothing is left to be streamed
  if (options.neurons || (may_stream && plan.needed_bytes() > plan.limit_bytes)) {
    StreamFfns(file, options, plan);
  } else {
    LeaveRoom(0, plan);
  }
  return plan;
}

void CheckBudget(const EnginePlan& plan, const std::string& path) {
  const uint64_t needed = plan.needed_bytes();
  if (needed <= plan.limit_bytes) return;
  std::string parts;
  for (const auto& [name, bytes] : plan.ledger) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, FormatSize(bytes));
  }
  const bool chooses_context = plan.ledger.contains("reserved");  // whoever reserves something
  const std::string more =
      IsModelFolder(path)
          ? "; of a folder all weights are held, and 'hearth convert' makes a file that is streamed"
          : "";
  const uint64_t mib = (needed + kProgramDriftBytes + (uint64_t{1} << 20) - 1) >> 20;
  const std::string what =
      fmt::format("{} does not fit into {}: the smallest that can is {}M ({}){}{}", path,
                  FormatSize(plan.limit_bytes), mib, parts,
                  chooses_context ? "" : "; a smaller context needs less", more);
  if (plan.limit_is_users) throw Error(ErrorCode::kOutOfBudget, Field{"memory"}, what);
  throw Error(ErrorCode::kOutOfBudget, "memory", what);
}

}  // namespace hearth
