// The selector of predicted mode: asks each FFN's predictor which neurons will be active.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accel/device_predictors.h"
#include "base/budget.h"
#include "base/buffer.h"
#include "model/model_spec.h"
#include "ops/compute.h"
#include "ops/linear.h"
#include "sparsity/predictor.h"
#include "sparsity/predictor_guess.h"
#include "sparsity/selector.h"

namespace hearth {

// What was predicted for the FFNs of one layer, all experts together.
struct PredictionCounts {
  uint64_t neurons = 0;    // that a predictor was asked about, a token at a time
  uint64_t predicted = 0;  // of those, expected to be active
};

// Layers without a predictor compute every neuron. Lists do not depend on the number of threads,
// nor on which tokens are asked about together. One thread at a time; a Select allocates nothing.
class PredictorSelector : public ActivationSelector {
 public:
  // Scratch for batches of up to max_tokens, and for guesses of up to tokens_together, charged to
  // `budget` as "activations". Everything referred to must outlive the object. Throws
  // Error(kInternal) where views do not fit the model.
  PredictorSelector(const ModelSpec& model, const ModelPredictors& predictors, Compute& compute,
                    Budget& budget, int64_t max_tokens, int64_t tokens_together = 1);

  // Layers whose predictors lie on a device, and not in the host's memory, are asked about there;
  // Select throws what the device does then. `predictors` must outlive the object.
  void AskOnDevice(accel::DevicePredictors& predictors) { on_device_ = &predictors; }

  void Select(const SelectionQuery& query, ActiveSets& out) override;
  ListGuess* BeginGuess(const SelectionQuery& query) override;

  // By layer, since construction or the last reset.
  const std::vector<PredictionCounts>& counts() const { return counts_; }
  void ResetCounts();

  // What the constructor charges, for planning; from a spec, before anything is loaded.
  static uint64_t ChargedBytes(const ModelSpec& model, const PredictorSpec& spec,
                               int64_t max_tokens, int64_t tokens_together = 1);

 private:
  bool IsOnDevice(int64_t layer) const { return on_device_ != nullptr && on_device_->Has(layer); }
  FloatView InputRows(const SelectionQuery& query);
  void Ask(const PredictorView& predictor, const SelectionQuery& query, FloatView logits);
  void Compact(float threshold, FloatView logits, std::span<std::span<const int32_t>> lists);

  const ModelPredictors& predictors_;
  Compute& compute_;
  accel::DevicePredictors* on_device_ = nullptr;
  int64_t max_tokens_ = 0;
  MatMulInput hidden_input_;
  MatMulInput inner_input_;
  Buffer scratch_;
  // Views into scratch_.
  float* gathered_ = nullptr;          // [max_tokens][hidden], residuals of one expert's tokens
  float* inner_ = nullptr;             // [max_tokens][widest rank]
  float* logits_ = nullptr;            // [max_tokens][most neurons]
  int32_t* lists_ = nullptr;           // likewise
  std::vector<int64_t> range_counts_;  // neurons found in each range of a token
  std::vector<PredictionCounts> counts_;
  PredictorGuess guess_;
};

}  // namespace hearth
