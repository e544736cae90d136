// Made predictors as the engine will hold them: quantized, in tiles, ready to be asked. For trying
// them on the model they were made for before a file is written.
#pragma once

#include "base/budget.h"
#include "base/buffer.h"
#include "model/model_spec.h"
#include "prepare/predict/predictor_set.h"
#include "sparsity/predictor.h"

namespace hearth {

class HeldPredictors {
 public:
  // Charged to `budget` as "predictors". Experts of a layer have the same rank. Throws
  // Error(kInternal) where the set does not fit the model, Error(kOutOfBudget).
  HeldPredictors(const PredictorSet& set, const ModelSpec& model, Budget& budget);

  HeldPredictors(const HeldPredictors&) = delete;
  HeldPredictors& operator=(const HeldPredictors&) = delete;

  const ModelPredictors& predictors() const { return predictors_; }
  void SetThreshold(int64_t layer, int64_t expert, float threshold);

 private:
  Buffer memory_;
  ModelPredictors predictors_;
};

// The spec of a set, as a file with it would say.
PredictorSpec SpecOf(const PredictorSet& set, const ModelSpec& model);

}  // namespace hearth
