#include "engine/load/engine_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/rounding.h"
#include "base/units.h"
#include "engine/load/ffn_mode.h"
#include "engine/load/placed_layers.h"
#include "engine/load/placed_matrices.h"
#include "engine/load/prompt_uploads.h"
#include "import/hugging_face.h"
#include "plan/ledger.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

// What no ledger entry names one by one: allocator slack and small containers; the stack of a
// thread and what its allocator keeps; for each token that a sequence chooses from, a candidate and
// a bit of a grammar's mask.
constexpr uint64_t kUnnamedBytes = uint64_t{2} << 20;
constexpr uint64_t kUnnamedThreadBytes = uint64_t{256} << 10;
constexpr uint64_t kUnnamedTokenBytes = 10;
// Where memory is short, prompts are read in passes of half as many tokens, down to this: where
// what passes work in would take more than one part in so many of what streamed FFNs have.
constexpr int64_t kFewestBatchTokens = 32;
constexpr uint64_t kPassShare = 2;
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
  limits.activations = options.activations;
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

uint64_t UnnamedBytes(const EngineOptions& options, const EnginePlan& plan) {
  return kUnnamedBytes + static_cast<uint64_t>(plan.threads) * kUnnamedThreadBytes +
         static_cast<uint64_t>(plan.load.spec.vocab_size * options.kv_sequences) *
             kUnnamedTokenBytes;
}

// What a model that is in memory as a whole takes, by name.
std::map<std::string, uint64_t> LedgerFor(const EngineOptions& options, const EnginePlan& engine) {
  const LoadPlan& plan = engine.load;
  const PassLimits& limits = engine.limits;
  const KvLayout layout = engine.kv_layout();
  const uint64_t selector =
      engine.mode == FfnMode::kPredicted
          ? PredictorSelector::ChargedBytes(plan.spec, plan.predictors->spec,
                                            TransformerPass::TokensOfQuery(limits),
                                            limits.tokens_together)
          : 0;
  return {
      {"program", options.program_bytes.value_or(ProgramBytes()) + UnnamedBytes(options, engine)},
      {"weights", Buffer::ChargedBytes(plan.weights_bytes)},
      {"kv cache", KvPool::ChargedBytes(layout, engine.kv.tokens)},
      {"activations", TransformerPass::ChargedBytes(plan.spec, limits, engine.threads) + selector}};
}

// Of tables that say where pages lie; a memory cgroup counts them too.
uint64_t PageTableBytes(uint64_t bytes) { return bytes / kBytesOfPageTable + (uint64_t{64} << 10); }

// Rounded up: what is named as enough must be.
uint64_t WholeMib(uint64_t bytes) { return (bytes + (uint64_t{1} << 20) - 1) >> 20; }

void SetKv(const KvPlan& kv, EnginePlan& plan) {
  const KvLayout layout = plan.kv_layout();
  const auto tables_of = [&](const KvPlan& of) {
    return of.memory_bytes(layout) / kBytesOfPageTable;
  };
  plan.ledger["page tables"] += tables_of(kv) - tables_of(plan.kv);
  plan.kv = kv;
  plan.ledger["kv cache"] = kv.frame_bytes(layout);
  plan.ledger.erase("kv buffers");
  if (kv.slots > 0) plan.ledger["kv buffers"] = kv.buffer_bytes(layout);
}

// Pages that a pass may write into at once: those of a prompt's tokens, and for each sequence its
// last one, of which it may need a copy.
int64_t FewestFrames(const EngineOptions& options, const PassLimits& limits) {
  return KvLayout::PagesFor(limits.max_tokens) +
         2 * std::min(options.kv_sequences, limits.max_tokens);
}

KvPlan SmallestKv(const EngineOptions& options, const EnginePlan& plan) {
  return SmallestKvPlan(plan.kv_layout(), plan.limits.max_context,
                        FewestFrames(options, plan.limits));
}

// Lets so many tokens, or else those of one context, have `bytes` of memory and a file. False where
// that is too little memory; nothing has changed then.
bool ShareKv(const EngineOptions& options, int64_t tokens, uint64_t bytes, EnginePlan& plan) {
  for (const int64_t count : {tokens, plan.limits.max_context}) {
    const std::optional<KvPlan> kv =
        PlanKv(plan.kv_layout(), count, FewestFrames(options, plan.limits), bytes);
    if (!kv) continue;
    SetKv(*kv, plan);
    return true;
  }
  return false;
}

// Whether everything fits without sequences beside the first.
bool FitsWithOneContext(const EnginePlan& plan) {
  const KvLayout layout = plan.kv_layout();
  const KvPlan one{.tokens = plan.limits.max_context};
  return plan.needed_bytes() - plan.kv.memory_bytes(layout) + one.memory_bytes(layout) <=
         plan.limit_bytes;
}

bool MaySpill(const EngineOptions& options, const EnginePlan& plan) {
  return options.may_spill_kv && !options.kv_memory_bytes && !options.neurons &&
         plan.limit_is_users;
}

// Lets pages of the KV cache lie on flash where the rest of the plan and `more` bytes leave too
// little for all of them. False where they leave too little for that too.
bool SpillKv(const EngineOptions& options, uint64_t more, EnginePlan& plan) {
  if (!MaySpill(options, plan)) return false;
  const uint64_t taken = plan.needed_bytes() - plan.kv.memory_bytes(plan.kv_layout()) + more;
  if (taken >= plan.limit_bytes) return false;
  const uint64_t room = plan.limit_bytes - taken;
  const uint64_t less = room - std::min(room, kProgramDriftBytes);
  return ShareKv(options, plan.kv.tokens, less, plan) ||
         ShareKv(options, plan.kv.tokens, room, plan);
}

// As the user says, for as many sequences as are asked for, or one.
void LimitKv(const EngineOptions& options, EnginePlan& plan) {
  const int64_t wanted = KvLayout::PagesFor(plan.limits.max_context) * KvLayout::kPageTokens;
  if (ShareKv(options, wanted * options.kv_sequences, *options.kv_memory_bytes, plan)) return;
  const KvPlan smallest = SmallestKv(options, plan);
  throw Error(ErrorCode::kOutOfBudget, Field{"kv_memory"},
              fmt::format("memory for a context of {} tokens, {}", plan.limits.max_context,
                          smallest.slots > 0 ? "of which the rest lies in a file"
                                             : "all of which must be in memory"),
              fmt::format("at least {}M", WholeMib(smallest.memory_bytes(plan.kv_layout()))),
              FormatSize(*options.kv_memory_bytes));
}

// Gives back so many bytes of the KV cache, or what it has beside one context.
void ShrinkKv(uint64_t bytes, EnginePlan& plan) {
  if (plan.kv.slots > 0) return;  // as the user says
  const auto pages = static_cast<int64_t>(bytes / plan.kv_layout().page_bytes()) + 1;
  SetKv(
      {.tokens = std::max(plan.kv.tokens - pages * KvLayout::kPageTokens, plan.limits.max_context)},
      plan);
}

// So that what is named as the smallest limit will do, however large a share of it the KV cache
// would like: room for as many bytes beside the ledger, where one context leaves it.
void LeaveRoom(uint64_t bytes, EnginePlan& plan) {
  while (plan.kv.slots == 0 && plan.kv.tokens > plan.limits.max_context &&
         plan.needed_bytes() + bytes > plan.limit_bytes) {
    ShrinkKv(plan.needed_bytes() + bytes - plan.limit_bytes, plan);
  }
}

// The pages of the KV cache that have memory, which the cache of a streamed model uses while they
// are free.
LentPages LentOf(const EnginePlan& plan) {
  return {.count = plan.kv.frames(), .page_bytes = plan.kv_layout().page_bytes()};
}

// Shares out what the ledger leaves of the limit; where that is too little, the ledger says what
// would do.
template <typename Streamed>
auto PlanStreaming(const Streamed& ffns, const EngineOptions& asked, EnginePlan& plan)
    -> decltype(ffns.PlanFor(uint64_t{0}, asked.streaming)) {
  const StreamingOptions& options = asked.streaming;
  const uint64_t smallest = ffns.SmallestBytes(options);
  LeaveRoom(smallest, plan);
  if (plan.needed_bytes() + smallest > plan.limit_bytes && !SpillKv(asked, smallest, plan)) {
    if (MaySpill(asked, plan)) SetKv(SmallestKv(asked, plan), plan);
    plan.ledger["streamed FFNs"] = smallest;  // which the check of the ledger refuses
    return {};
  }
  const uint64_t room = plan.limit_bytes - plan.needed_bytes();
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
    return static_cast<int64_t>(LedgerSum(ledger)) - static_cast<int64_t>(plan.limit_bytes);
  };
  const int64_t planned_slots = plan.neurons.cache_slots;
  if (options.cache_may_shrink && missing(planned_slots) > 0) {
    const int64_t fewest_slots = planned_slots - planned_slots / 2;
    if (const int64_t bytes = missing(fewest_slots); bytes > 0) {
      ShrinkKv(static_cast<uint64_t>(bytes), plan);
      plan.neurons.lent = LentOf(plan);
    }
    const uint64_t slot = plan.neurons.slot_bytes(bundles.shape);
    const int64_t bytes = std::max<int64_t>(missing(planned_slots), 0);
    const int64_t fewer =
        RoundUp(DivideUp(bytes, static_cast<int64_t>(slot)), StreamPlan::PiecesOfPages(slot));
    plan.neurons.cache_slots = std::max(planned_slots - fewer, fewest_slots);
  }
  bundles.AddTo(plan.ledger, plan.neurons, options.streaming);
  if (plan.needed_bytes() <= plan.limit_bytes) return;
  throw Error(ErrorCode::kOutOfBudget, "plan",
              options.cache_may_shrink ? "memory for requests together, beside half of its cache"
                                       : "memory for its neurons and the rest of the model",
              "at most " + FormatSize(plan.limit_bytes), FormatSize(plan.needed_bytes()));
}

// Returns the mode to run the file in, and takes out predictors, which other modes than `predicted`
// do not ask.
FfnMode ChooseMode(const GgufFile& file, const EngineOptions& options, LoadPlan& plan) {
  const FfnMode mode = ResolveMode(file, plan, options.mode);
  if (mode == FfnMode::kPredicted || !plan.predictors) return mode;
  RemoveTensors(plan, [&](const ResidentTensor& tensor) {
    const auto& layers = plan.predictors->layers;
    return std::any_of(layers.begin(), layers.end(), [&](const ModelPredictors::Layer& layer) {
      const WeightView* const slot = tensor.decl.slot;
      return slot == &layer.down || slot == &layer.up || slot == &layer.bias;
    });
  });
  plan.predictors.reset();
  return mode;
}

// Takes the FFNs out of the plan, and shares out what the ledger leaves of the limit.
void StreamFfns(const GgufFile& file, const EngineOptions& options, EnginePlan& plan) {
  const bool is_packed = plan.load.is_packed;
  if (is_packed) {
    plan.bundles =
        StreamedBundles::TakeFrom(plan.load, file, plan.mode, options.streaming.holds_gates);
  } else {
    plan.matrices = StreamedFfnMatrices::TakeFrom(plan.load, file);
  }
  plan.ledger["weights"] = Buffer::ChargedBytes(plan.load.weights_bytes);
  const uint64_t others = plan.needed_bytes();
  if (!is_packed) {
    plan.extents = PlanStreaming(*plan.matrices, options, plan);
  } else if (options.neurons) {
    TakePlanned(options, plan);
  } else {
    plan.neurons = PlanStreaming(*plan.bundles, options, plan);
  }
  plan.streamed_bytes = plan.needed_bytes() - std::min(plan.needed_bytes(), others);
}

void LeaveEmbedding(const GgufFile& file, EnginePlan& plan) {
  plan.embedding = EmbeddingTable::TakeFrom(plan.load, file, plan.limits.max_tokens);
  if (!plan.embedding) return;
  plan.ledger["weights"] = Buffer::ChargedBytes(plan.load.weights_bytes);
  plan.ledger["embedding rows"] = RowTable::ChargedBytes(plan.embedding->rows);
}

// Whether any FFN, or neuron of a packed model, is not on a device.
bool LeavesFfns(const LoadPlan& plan) {
  const auto is_ffn = [&](const ResidentTensor& tensor) {
    return std::any_of(plan.weights->layers.begin(), plan.weights->layers.end(),
                       [&](const LayerWeights& w) { return tensor.decl.slot == &w.ffn_down; });
  };
  return std::any_of(plan.tensors.begin(), plan.tensors.end(), [&](const ResidentTensor& tensor) {
    return plan.is_packed ? tensor.bundles.has_value() && tensor.decl.rows > 0 : is_ffn(tensor);
  });
}

void CheckActivations(const EngineOptions& options, const LoadPlan& plan) {
  if (options.activations == TileActivations::kInt8) return;
  const bool has_tiles = std::any_of(plan.tensors.begin(), plan.tensors.end(),
                                     [](const ResidentTensor& tensor) { return tensor.is_tiled; });
  if (has_tiles && !plan.is_packed) return;
  throw Error(
      ErrorCode::kUnsupported, Field{"activations"},
      plan.is_packed
          ? "a packed model's neurons multiply 8-bit activations: leave f16 out, or run the "
            "file that it was packed from"
          : "f16 has no effect: no matrix is quantized, and floats multiply floats");
}

void SetDeviceLimits(const OnDevice& on_device, EnginePlan& plan) {
  plan.limits.device_neurons.assign(on_device.neurons.begin(), on_device.neurons.end());
  if (on_device.matrices == nullptr) return;
  plan.limits.sums_on_device = HasFfns(*on_device.matrices);
  plan.limits.layers_on_device = LayersShapeOf(plan.load.spec, *on_device.matrices, {}).any();
}

// The host's memory through which weights, keys and values go to the device.
void ChargeStaging(const GgufFile& file, const EngineOptions& options,
                   const MatrixPlacement& matrices, EnginePlan& plan) {
  if (matrices.upload_tokens > 0) plan.ledger["upload buffers"] = PromptUploads::HostBytes();
  if (matrices.kv_tokens == 0) return;
  const accel::DeviceAttentionShape attention =
      AttentionShapeOf(plan.load.spec, matrices, PassesFor(options, file, plan.load));
  plan.ledger["kv staging"] = Buffer::ChargedBytes(attention.page_bytes());
}

EnginePlan PlanForBatch(const GgufFile& file, const EngineOptions& options,
                        const OnDevice& on_device) {
  EnginePlan plan;
  plan.limit_bytes = options.memory_bytes.value_or(DefaultLimitBytes());
  plan.limit_is_users = options.memory_bytes.has_value();
  plan.threads = options.threads == 0 ? AvailableCpus() : options.threads;
  plan.load = PlanLoad(file);
  CheckActivations(options, plan.load);
  if (!on_device.neurons.empty()) LeaveToDevice(plan.load, on_device.neurons);
  if (on_device.matrices != nullptr) {
    if (!options.adapters.empty()) CheckAdapters(*on_device.matrices, plan.load.spec);
    LeaveToDevice(plan.load, *on_device.matrices);
  }
  if (!options.silu_thresholds.empty()) ThresholdSilu(options.silu_thresholds, &plan.load.spec);
  plan.load.drop_page_cache = plan.limit_is_users;
  plan.load.io = options.streaming.io;
  plan.adapters = PlanAdapters(options, plan.load);
  plan.limits = ChooseLimits(options, plan.load, plan.adapters, file.path());
  SetDeviceLimits(on_device, plan);
  plan.mode = ChooseMode(file, options, plan.load);
  plan.kv.tokens = ChooseKvTokens(options, plan.limits, plan.load.spec, plan.limit_bytes);
  plan.ledger = LedgerFor(options, plan);
  if (on_device.matrices != nullptr) ChargeStaging(file, options, *on_device.matrices, plan);
  for (const AdapterPlan& adapter : plan.adapters) {
    plan.ledger["adapters"] += Buffer::ChargedBytes(adapter.bytes());
  }
  if (options.reserved_bytes > 0) plan.ledger["reserved"] = options.reserved_bytes;
  // The cheapest thing to read: a row per token.
  if (plan.needed_bytes() > plan.limit_bytes && !IsModelFolder(file.path())) {
    LeaveEmbedding(file, plan);
  }
  plan.ledger["page tables"] = PageTableBytes(plan.needed_bytes());
  if (options.neurons && !plan.load.is_packed) {
    throw Error(ErrorCode::kInvalidArgument, "plan", "it is about neurons of a packed file",
                "a packed file", file.path());
  }
  if (options.kv_memory_bytes) LimitKv(options, plan);
  // Weights that fit are not streamed for the sake of keys and values that a long context would
  // add.
  if (!FitsWithOneContext(plan)) SpillKv(options, 0, plan);
  // An execution plan is obeyed also where the program takes less than it allowed for.
  const bool may_stream = options.may_stream && !IsModelFolder(file.path()) &&
                          LeavesFfns(plan.load);  // else nothing is left to be streamed
  if (options.neurons || (may_stream && plan.needed_bytes() > plan.limit_bytes)) {
    StreamFfns(file, options, plan);
  } else {
    LeaveRoom(0, plan);
    const bool fits = plan.needed_bytes() <= plan.limit_bytes;
    if (!fits && MaySpill(options, plan)) SetKv(SmallestKv(options, plan), plan);
  }
  return plan;
}

bool HasRoomForPasses(const EnginePlan& plan) {
  if (plan.needed_bytes() > plan.limit_bytes) return false;
  return !plan.is_streamed() || plan.ledger.at("activations") <= plan.streamed_bytes / kPassShare;
}

}  // namespace

uint64_t DefaultLimitBytes() { return DefaultMemoryBytes(); }

uint64_t EnginePlan::needed_bytes() const { return LedgerSum(ledger); }

EnginePlan PlanEngine(const GgufFile& file, const EngineOptions& options,
                      const OnDevice& on_device) {
  EngineOptions asked = options;
  // A pass has a token of each sequence that is decoded.
  const int64_t fewest = std::max(kFewestBatchTokens, options.kv_sequences);
  while (true) {
    const bool is_last = !options.may_shorten_passes || asked.batch_tokens <= fewest;
    try {
      EnginePlan plan = PlanForBatch(file, asked, on_device);
      if (is_last || HasRoomForPasses(plan)) return plan;
    } catch (const Error& error) {
      if (is_last || error.code() != ErrorCode::kOutOfBudget) throw;
    }
    asked.batch_tokens = std::max(asked.batch_tokens / 2, fewest);
  }
}

DevicePasses PassesFor(const EngineOptions& options, const GgufFile& file, const LoadPlan& plan) {
  const int64_t context =
      options.context > 0 ? options.context : std::min(plan.spec.context_length, kDefaultContext);
  return {.max_tokens = options.batch_tokens,
          .kv_codec = options.kv_codec,
          .kv_tokens = context * std::max<int64_t>(options.kv_sequences, 1),
          .predicts = ResolveMode(file, plan, options.mode) == FfnMode::kPredicted};
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
  const std::string what =
      fmt::format("{} does not fit into {}: the smallest that can is {}M ({}){}{}", path,
                  FormatSize(plan.limit_bytes), WholeMib(needed + kProgramDriftBytes), parts,
                  chooses_context ? "" : "; a smaller context needs less", more);
  if (plan.limit_is_users) throw Error(ErrorCode::kOutOfBudget, Field{"memory"}, what);
  throw Error(ErrorCode::kOutOfBudget, "memory", what);
}

}  // namespace hearth
