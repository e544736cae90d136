// Start here: a model loaded within a memory budget, ready for sessions.
//
//   auto engine = Engine::Load("model.gguf", {.context = 2048});
//   Session session(*engine);
//   session.Generate(engine->model().tokenizer().Encode("Hello"), {}, on_text);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "engine/load/adapters.h"
#include "engine/load/device_part.h"
#include "engine/load/engine_options.h"
#include "engine/load/engine_plan.h"
#include "engine/load/matrix_streaming.h"
#include "engine/load/model.h"
#include "engine/load/neuron_streaming.h"
#include "ops/compute.h"
#include "pass/transformer_pass.h"
#include "sparsity/mode.h"
#include "sparsity/selector.h"

namespace hearth {

// Owns everything that a run needs in memory. One thread at a time.
class Engine {
 public:
  // Opens, checks and loads `path`. Before anything large is allocated, the sum of what will be
  // is held against the budget: Error(kOutOfBudget) names the smallest that would do. Throws
  // hearth::Error for everything else that can be wrong with the file or the options.
  static std::unique_ptr<Engine> Load(const std::string& path, const EngineOptions& options,
                                      const ProgressFn& progress = {});

  const Model& model() const { return *model_; }
  // Low-rank adapters that texts may be computed with; passes use the default mix where a sequence
  // names none.
  const AdapterSet& adapters() const { return adapters_; }
  Model& model() { return *model_; }
  Compute& compute() { return compute_; }
  Budget& budget() { return budget_; }
  const Budget& budget() const { return budget_; }
  TransformerPass& pass() { return *pass_; }
  KvPool& kv_pool() { return *kv_pool_; }
  const KvPool& kv_pool() const { return *kv_pool_; }
  // How FFNs are computed, and the selector that says so to TransformerPass.
  FfnMode mode() const { return selector_->mode(); }
  ActivationSelector& selector() { return *selector_; }
  // For prompts: exact in every mode. What a predictor would save there, gating saves too.
  ActivationSelector& prefill_selector() {
    return mode() == FfnMode::kPredicted ? gated_selector_ : *selector_;
  }
  // FFNs that are not all in memory; null where they are.
  const StreamedFfns* streamed() const { return streamed_.get(); }
  // The same of a model that is not packed.
  const StreamedMatrices* streamed_matrices() const { return matrices_.get(); }
  // Between passes, after a result that is no number: what was read may be damaged.
  void ForgetCached() noexcept {
    if (matrices_) matrices_->ForgetCached();
  }
  bool is_streamed() const { return streamed_ || matrices_; }
  // Token embeddings that are not in memory; null where they are.
  const RowTable* embedding() const { return embedding_.get(); }
  // The part of the model that is on a device.
  const DeviceUse& device() const { return device_; }
  // A matrix of one FFN as it is multiplied, of a model that is not packed: where it lies in
  // memory, or, where it is streamed, read into `copy`, which is charged as "FFN at hand" and must
  // live as long as the view. Between passes. Throws Error(kIo), Error(kOutOfBudget).
  WeightView MatrixOf(int64_t layer, int64_t expert, FfnMatrix which, Buffer& copy);
  // Another pass over the same weights, in memory or not, for a spec that differs in the activation
  // alone and outlives it. Charged as the engine's own; one of the two at a time.
  std::unique_ptr<TransformerPass> MakePass(const ModelSpec& spec, const PassLimits& limits);
  // Bytes per second of reads as decoding makes them, while nothing is computed; between passes.
  // Nothing where nothing is streamed.
  std::optional<double> ProbeStorage(double seconds);
  // What passes read so far; zeros where nothing is streamed.
  StreamCounts stream_counts() const {
    return streamed_ ? streamed_->counts() : matrices_ ? matrices_->counts() : StreamCounts();
  }
  // For TransformerPass::Watch; nothing where FFNs are no single neurons, and where a device has
  // some of them.
  std::optional<NeuronMap> MakeNeuronMap() const;
  int threads() const { return compute_.threads(); }
  int64_t context() const { return pass_->limits().max_context; }
  // What the budget promised at load, by name; the sum is what the run may take.
  const std::map<std::string, uint64_t>& planned_ledger() const { return planned_ledger_; }

 private:
  Engine(uint64_t limit_bytes, const std::string& isa, int threads,
         std::optional<int> caller_processor)
      : budget_(limit_bytes), compute_(isa, threads, caller_processor) {}
  void OpenStreamed(const std::string& path, const EnginePlan& plan,
                    const StreamingOptions& options, const ProgressFn& progress);
  void MakeKvPool(const EnginePlan& plan, std::unique_ptr<KvFlash> flash);

  Budget budget_;  // first: everything below is charged to it
  Compute compute_;
  BudgetCharge program_;
  BudgetCharge page_tables_;
  std::map<std::string, uint64_t> planned_ledger_;
  std::unique_ptr<Model> model_;
  AdapterSet adapters_;
  std::unique_ptr<RowTable> embedding_;
  std::unique_ptr<StreamedFfns> streamed_;
  std::unique_ptr<StreamedMatrices> matrices_;
  DeviceUse device_;
  std::unique_ptr<KvPool> kv_pool_;
  std::unique_ptr<TransformerPass> pass_;
  std::unique_ptr<ActivationSelector> selector_;
  DenseSelector gated_selector_{FfnMode::kGated};
};

}  // namespace hearth
