// Predictors from an FFN's own weights, without training: the rows of the gate, brought to a low
// rank where that matters for the inputs that occur.
//
// A neuron's score is its gate, for dReLU its gate plus a multiple of its up: both must be positive
// there, and a neuron whose up is far below zero is silent however open its gate. The multiple is
// chosen per neuron, from a few, as what finds the neuron's mass in the fewest candidates.
// The best approximation of rank r of all scores Y = W X over the samples is P P^T W X, P being the
// first r left singular vectors of Y; so up = P and down = P^T W, both scaled by the square root
// of the singular values. P for a lower rank is the beginning of P for a higher one.
// Of full rank, down is the identity and up is W itself: no product of factors, and exact in every
// stored type.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "prepare/predict/ffn_data.h"
#include "prepare/predict/predictor_set.h"

namespace hearth {

class TrainingFreeMaker {
 public:
  // Tokens whose scores are factorized; the cost grows with their cube.
  static constexpr int64_t kMaxFactorTokens = 1536;
  // Rows of W that are in memory as floats at a time.
  static constexpr int64_t kReadRows = 1024;

  // Of one FFN. Turns data.fit_gate into the scores and lets go of data.fit_up, which nothing needs
  // afterwards. max_rank is a multiple of 32. What is referred to must outlive the maker.
  TrainingFreeMaker(Engine& engine, const FfnMatrices& matrices, FfnData& data, int64_t layer,
                    PredictorInput input, int64_t max_rank);

  // What the samples have use for.
  int64_t max_rank() const { return max_rank_; }

  // rank is a multiple of 32 and at most the hidden size; what it has beyond max_rank is zeros.
  // Biases make up for what storing it in `dtype`
  // does to the mean score of every neuron and for how much each must score to be worth listing, at
  // a recall of about `recall`; the threshold is left at 0.
  MadePredictor Make(int64_t rank, DType dtype, double recall);

 private:
  const LayerSpec& layer_spec() const {
    return engine_.model().spec().layers[static_cast<size_t>(layer_)];
  }
  // Whether predictors look at what the layer's norm has yet to divide.
  bool is_normed() const { return input_ == PredictorInput::kResidual && layer_spec().norm_before; }
  void ChooseUpShares(const FfnData& data);
  // Singular vectors that the samples have, less than the hidden size.
  int64_t FactorRanks() const;
  void Factorize();
  // Rows [begin, end) of W.
  void ReadRows(int64_t begin, int64_t end, FloatMatrix& out) const;
  void MakeFactors(int64_t rank, MadePredictor& made) const;
  void MakeFull(MadePredictor& made) const;
  std::vector<float> MeanError(const MadePredictor& made, DType dtype) const;

  Engine& engine_;
  const FfnMatrices& matrices_;
  FfnData& data_;
  int64_t layer_;
  PredictorInput input_;
  int64_t max_rank_;
  std::vector<float> up_shares_;   // per neuron
  FloatMatrix left_;               // P^T, [ranks][neurons]; empty until it is asked for
  FloatMatrix right_;              // P^T W, [ranks][hidden]
  std::vector<float> root_sizes_;  // square roots of the singular values
};

}  // namespace hearth
