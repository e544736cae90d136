// Start here: one pass of a ragged batch through the model, tokens in, logits out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/budget.h"
#include "ops/linear.h"
#include "pass/activations.h"
#include "pass/attention_block.h"
#include "pass/device_kv.h"
#include "pass/ffn_block.h"
#include "pass/ffn_executor.h"
#include "pass/pass_context.h"
#include "pass/pass_observer.h"
#include "pass/pass_rows.h"
#include "pass/pass_seam.h"
#include "pass/pass_shape.h"
#include "pass/scratch_arena.h"
#include "pass/spilled_pages.h"
#include "pass/whole_layers.h"

namespace hearth {

// The scratch memory of passes and the passes themselves. One thread at a time.
class TransformerPass {
 public:
  // Logit rows that one call of Logits may ask for.
  static constexpr int64_t kMaxLogitRows = 16;

  // Allocates all scratch, charged to `budget` as "activations" and "logits". Everything referred
  // to must outlive the object.
  TransformerPass(const ModelSpec& spec, const ModelWeights& weights, Compute& compute,
                  Budget& budget, const PassLimits& limits, const StreamedWeights& streamed = {});
  TransformerPass(const TransformerPass&) = delete;
  TransformerPass& operator=(const TransformerPass&) = delete;

  // Runs all rows through all layers. Throws what CheckShape does, and Error(kOutOfBudget) when a
  // cache has no room; no cache has changed then. Where FFNs are streamed or pages of caches lie on
  // flash also Error(kIo) and Error(kCorrupt), and Error(kCancelled) where nobody wants it any
  // more; the tokens are taken out of the caches again then, and the next call works.
  void Run(const PassShape& shape, ActivationSelector& selector, PassObserver* observer = nullptr);
  // The adapters of sequences of later passes that name none; must live as long. Null: none.
  void SetDefaultAdapters(const AdapterMix* mix) { adapters_.SetDefault(mix); }
  // See PassSeam.
  void StopWhen(std::function<bool()> is_unwanted) { seam_.StopWhen(std::move(is_unwanted)); }

  // Logits of rows [first, first + count) of the last pass: [count][vocab]. Valid until the
  // next call. count <= kMaxLogitRows.
  FloatView Logits(int64_t first, int64_t count);

  // What the output matrix multiplies, the last hidden states after their norm, of the rows of the
  // last pass: [rows][hidden_size]. Valid until the next call of Run.
  FloatView FinalStates() const { return activations_.normed.Rows(0, rows_.count()); }

  // Adds the wall time of every op of later calls to `seconds`, which must live as long; null ends
  // that.
  void RecordOps(OpSeconds* seconds) { seam_.Record(seconds); }

  // Draws what FFNs of single neurons compute in later passes into `map`, which must live as long;
  // null ends that.
  void Watch(NeuronMap* map) { executor_->Watch(map); }

  // Neurons computed by FFNs of single neurons, over all passes so far.
  SparseFfnCounts ffn_counts() const { return executor_->counts(); }

  const PassLimits& limits() const { return limits_; }

  // The most tokens that passes ask a selector about at a time.
  static int64_t TokensOfQuery(const PassLimits& limits);
  // What the constructor charges, for planning.
  static uint64_t ChargedBytes(const ModelSpec& spec, const PassLimits& limits, int threads);

 private:
  void RunLayers(const Activations& a);
  void LookUpTokens(const Activations& a);
  void AddPositions(const Activations& a);
  void BeginUploads(const FfnPass& pass);
  void EndUploads() noexcept;

  const PassLimits limits_;
  const PassWidths widths_;
  PassSeam seam_;
  MatMulInput input_;
  AdapterTerms adapters_;
  SpilledPages spilled_;
  DeviceKv device_kv_;
  bool is_uploading_ = false;
  const PassContext context_;
  Activations activations_;
  FloatView logits_;  // kMaxLogitRows rows
  const ScratchArena scratch_, logits_memory_;
  AttentionBlock attention_;
  std::unique_ptr<FfnExecutor> executor_;
  FfnBlock ffn_;
  WholeLayers whole_;
  PassRows rows_;
};

}  // namespace hearth
