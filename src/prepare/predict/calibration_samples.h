// What enters the FFNs of a model over a text: the samples that predictors are made from.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "prepare/predict/float_matrix.h"
#include "sparsity/predictor.h"

namespace hearth {

// The inputs of one layer: a row per token of the text, in its order. What gates and ups say of
// them is computed from the weights when it is needed, which takes a fraction of the memory.
class LayerSamples {
 public:
  LayerSamples(Budget& budget, int64_t tokens, int64_t hidden, int64_t experts,
               bool keeps_residual);

  int64_t tokens() const { return tokens_; }
  int64_t hidden() const { return hidden_; }
  // Tokens that the router sent to an expert, ascending; all where the layer has one FFN.
  const std::vector<int64_t>& TokensOf(int64_t expert) const {
    return tokens_of_[static_cast<size_t>(expert)];
  }
  void Add(int64_t expert, int64_t first_token, std::span<const int64_t> batch_tokens,
           FloatView residual, FloatView input);
  // Rows of the chosen tokens. The residual only where it was kept.
  void Read(PredictorInput which, std::span<const int64_t> tokens, FloatView out) const;

  static uint64_t ChargedBytes(int64_t tokens, int64_t hidden, bool keeps_residual);

 private:
  int64_t tokens_;
  int64_t hidden_;
  Buffer input_;     // binary16
  Buffer residual_;  // likewise
  std::vector<std::vector<int64_t>> tokens_of_;
};

// Called with tokens done and in all.
using SampleProgressFn = std::function<void(int64_t done, int64_t total)>;

// Runs the model densely over `tokens` (a text without BOS, in windows of the engine's context) and
// keeps what enters layers [first, first + layers.size()).
void CollectSamples(Engine& engine, std::span<const TokenId> tokens, int64_t first,
                    std::span<LayerSamples> layers, const SampleProgressFn& progress);

}  // namespace hearth
