#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "import/open_model.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

// For pages of the KV cache that do not fit into memory; before minutes are spent on loading.
std::optional<UnnamedFile> OpenKvFile(const EnginePlan& plan, const EngineOptions& options) {
  if (plan.kv.slots == 0) return std::nullopt;
  const std::string folder = options.kv_folder.empty() ? TemporaryFolder() : options.kv_folder;
  const uint64_t bytes = KvFlash::FileBytes(plan.kv_layout(), plan.kv.slots);
  return options.open_kv_file ? options.open_kv_file(folder, bytes)
                              : OpenUnnamedFile(folder, bytes, options.streaming.io);
}

}  // namespace

void Engine::OpenStreamed(const std::string& path, const EnginePlan& plan,
                          const StreamingOptions& options, const ProgressFn& progress) {
  if (plan.bundles) {
    streamed_ = plan.bundles->Open(path, budget_, plan.neurons, options);
    streamed_->Fill(compute_, progress);
  } else {
    matrices_ = plan.matrices->Open(budget_, plan.extents, options);
    matrices_->Fill(compute_, progress);
  }
}

// In the memory of what is streamed, where there is any.
void Engine::MakeKvPool(const EnginePlan& plan, std::unique_ptr<KvFlash> flash) {
  const KvLayout layout = KvLayoutFor(model_->spec(), plan.limits.kv_codec);
  const auto lent_by = [](LentSlots* slots) {
    return LentKvMemory{.pages = slots->pages(),
                        .take = [slots](int64_t page) { slots->Take(page); },
                        .give_back = [slots](int64_t page) { slots->Return(page); }};
  };
  if (streamed_) {
    kv_pool_ = std::make_unique<KvPool>(layout, plan.kv.tokens, lent_by(&streamed_->kv_slots()),
                                        std::move(flash));
  } else if (matrices_) {
    kv_pool_ = std::make_unique<KvPool>(layout, plan.kv.tokens, lent_by(&matrices_->kv_slots()),
                                        std::move(flash));
  } else {
    kv_pool_ = std::make_unique<KvPool>(budget_, layout, plan.kv.tokens, std::move(flash));
  }
}

WeightView Engine::MatrixOf(int64_t layer, int64_t expert, FfnMatrix which, Buffer& copy) {
  if (!matrices_) {
    return model_->weights().layers[static_cast<size_t>(layer)].Matrix(which).Expert(expert);
  }
  const WeightView& streamed = matrices_->map().Matrix(layer, which).view;
  copy = Buffer(budget_, "FFN at hand", streamed.expert_bytes());
  return matrices_->Read(compute_, layer, expert, which, copy.data());
}

std::optional<double> Engine::ProbeStorage(double seconds) {
  if (streamed_) return streamed_->ProbeReads(seconds);
  if (matrices_) return matrices_->ProbeReads(seconds);
  return std::nullopt;
}

std::optional<NeuronMap> Engine::MakeNeuronMap() const {
  if (!pass_->limits().ffn_of_neurons || device_.part) return std::nullopt;
  const ModelSpec& spec = model_->spec();
  int64_t experts = 1, neurons = 1;
  for (const LayerSpec& layer : spec.layers) {
    experts = std::max(experts, layer.ffn.num_experts);
    neurons = std::max(neurons, layer.ffn.intermediate_size);
  }
  return NeuronMap(spec.num_layers, experts, neurons);
}

std::unique_ptr<TransformerPass> Engine::MakePass(const ModelSpec& spec, const PassLimits& limits) {
  DevicePart* const device = device_.part.get();
  auto pass = std::make_unique<TransformerPass>(
      spec, model_->weights(), compute_, budget_, limits,
      StreamedWeights{streamed_.get(), matrices_.get(), device ? device->ffns() : nullptr,
                      embedding_.get(), device ? device->model() : nullptr});
  pass->SetDefaultAdapters(&adapters_.default_mix());
  return pass;
}

namespace {

// How a model is loaded: what of it is on a device, and the plan for the rest.
struct LoadDecision {
  DeviceUse device;
  EnginePlan plan;
};

// Fills the device as well: where that fails, the rest is another.
LoadDecision Decide(const GgufFile& file, const EngineOptions& options,
                    const ProgressFn& progress) {
  LoadDecision decision;
  const auto plan = [&] {
    decision.plan =
        PlanEngine(file, options, decision.device.part ? decision.device.part->what() : OnDevice());
    CheckBudget(decision.plan, file.path());
  };
  if (!options.device.is_wanted()) {
    if (options.device.planned) {
      throw Error(ErrorCode::kInvalidArgument, Field{"device"},
                  "the plan has a part of the model on a device: say on which");
    }
    plan();
    return decision;
  }
  const LoadPlan whole = PlanLoad(file);
  DevicePasses passes = PassesFor(options, file, whole);
  const auto place = [&] {
    try {
      decision.device.part.reset();
      decision.device.part = std::make_unique<DevicePart>(options.device, file, whole, passes);
    } catch (const Error& error) {
      if (!options.device.may_do_without) throw;
      decision.device.why_none = error.what();
    }
    plan();
  };
  place();
  const DevicePart* const part = decision.device.part.get();
  if (part != nullptr && part->predictors() != nullptr && decision.plan.is_streamed() &&
      !options.device.planned) {
    // Only predictors in the host's memory can be asked early, to read ahead.
    passes.predicts = false;
    place();
  }
  if (!decision.device.part) return decision;
  try {
    decision.device.part->Fill(file, whole, progress);
  } catch (const Error& error) {
    if (!options.device.may_do_without) throw;
    decision.device.why_none = error.what();
    decision.device.part.reset();
    plan();
  }
  return decision;
}

}  // namespace

std::unique_ptr<Engine> Engine::Load(const std::string& path, const EngineOptions& options,
                                     const ProgressFn& progress) {
  const GgufFile file = OpenModel(path, options.activation);
  ReadModelSpec(file);  // an architecture that nobody knows is the first thing to say
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file.metadata());
  LoadDecision decision = Decide(file, options, progress);
  EnginePlan& plan = decision.plan;

  const KvLayout layout = plan.kv_layout();
  std::optional<UnnamedFile> kv_file = OpenKvFile(plan, options);
  std::unique_ptr<Engine> engine(
      new Engine(plan.limit_bytes, options.isa, plan.threads, options.caller_processor));
  UseMeasuredTiles(engine->compute_, options.hardware_file);
  engine->device_ = std::move(decision.device);
  engine->planned_ledger_ = plan.ledger;
  engine->program_ = engine->budget_.Charge("program", plan.ledger["program"]);
  engine->page_tables_ = engine->budget_.Charge("page tables", plan.ledger["page tables"]);
  engine->model_ = Model::Load(file, std::move(plan.load), std::move(tokenizer), engine->budget_,
                               engine->compute_, progress);
  engine->adapters_ = AdapterSet(plan.adapters, engine->model_->spec().num_layers, engine->budget_);
  if (plan.embedding) {
    engine->embedding_ = plan.embedding->Open(engine->budget_, options.streaming);
  }
  if (plan.is_streamed()) engine->OpenStreamed(path, plan, options.streaming, progress);
  if (engine->device_.part) {
    engine->device_.part->MakeUploads(*engine->model_, engine->budget_);
    engine->device_.part->MakeAttention(*engine->model_, engine->budget_);
  }
  const ModelSpec& spec = engine->model_->spec();
  std::unique_ptr<KvFlash> flash;
  if (kv_file) {
    flash = std::make_unique<KvFlash>(engine->budget_, layout, plan.kv.slots, *std::move(kv_file));
  }
  engine->MakeKvPool(plan, std::move(flash));
  engine->pass_ = engine->MakePass(spec, plan.limits);
  if (plan.mode == FfnMode::kPredicted) {
    auto selector = std::make_unique<PredictorSelector>(
        spec, *engine->model_->predictors(), engine->compute_, engine->budget_,
        TransformerPass::TokensOfQuery(plan.limits), plan.limits.tokens_together);
    const DeviceUse& device = engine->device_;
    if (device.part && device.part->predictors() != nullptr) {
      selector->AskOnDevice(*device.part->predictors());
    }
    engine->selector_ = std::move(selector);
  } else {
    engine->selector_ = std::make_unique<DenseSelector>(plan.mode);
  }
  return engine;
}

}  // namespace hearth
