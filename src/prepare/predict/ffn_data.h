// What a predictor of one FFN is made from and judged by: inputs, and what its neurons make of
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "engine/engine.h"
#include "prepare/predict/calibration_samples.h"
#include "prepare/predict/float_matrix.h"
#include "sparsity/predictor.h"

namespace hearth {

// The matrices that say when the neurons of one FFN are active: the model's own, or copies where
// it streams them (Engine::MatrixOf). Of an FFN of two matrices, its first is the gate.
class FfnMatrices {
 public:
  // The model is not packed. Throws Error(kIo), Error(kOutOfBudget).
  FfnMatrices(Engine& engine, int64_t layer, int64_t expert);
  FfnMatrices(const FfnMatrices&) = delete;
  FfnMatrices& operator=(const FfnMatrices&) = delete;

  int64_t layer() const { return layer_; }
  int64_t expert() const { return expert_; }
  const WeightView& gate() const { return gate_; }
  const WeightView& up() const { return up_; }  // empty for two matrices
  // Of the gate, [neurons]; null where it has none.
  const float* biases() const { return biases_; }

 private:
  int64_t layer_, expert_;
  Buffer gate_copy_, up_copy_;  // before the views of them
  WeightView gate_, up_;
  const float* biases_ = nullptr;
};

// Tokens to make a predictor from, and later ones to judge it by. Rows are tokens.
struct FfnData {
  FloatMatrix fit_inputs;   // [tokens][hidden], what the predictor will see
  FloatMatrix fit_gate;     // [tokens][neurons], what the activation takes
  FloatMatrix fit_up;       // likewise; without rows for two matrices
  FloatMatrix fit_mass;     // [tokens][neurons], |product that reaches down|
  FloatMatrix held_inputs;  // of the held-out tokens
  FloatMatrix held_mass;

  int64_t hidden() const { return fit_inputs.cols(); }
  int64_t neurons() const { return fit_mass.cols(); }
};

// Computes it from the samples of the FFN's layer. An expert that fewer than kFewTokens chose is
// shown other experts' tokens too: its weights say what it would make of them. Tokens from
// `held_from` on are held out.
FfnData ComputeFfnData(Engine& engine, const FfnMatrices& matrices, const LayerSamples& samples,
                       PredictorInput input, int64_t held_from);

inline constexpr int64_t kFewTokens = 256;

}  // namespace hearth
