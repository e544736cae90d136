// Predictors by logistic regression (P1 §5.1): whether a neuron is active, learned from what
// it did over a text. Training starts from a predictor that was made without it.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/engine.h"
#include "prepare/predict/ffn_data.h"
#include "prepare/predict/predictor_set.h"

namespace hearth {

// Tokens of a step of training.
inline constexpr int64_t kTrainingBatchTokens = 256;

struct TrainingOptions {
  DType dtype = DType::kQ4_0;  // that it is judged in
  double recall = 0.99;        // that it is judged at
  int max_epochs = 12;
  uint64_t seed = 0;  // of the order of tokens
};

// Called between steps with the share that is done. May throw, to cancel.
using TrainingProgressFn = std::function<void(double done)>;

// Weighted logistic loss: an active neuron counts by its mass (and a floor), a silent one less.
// Adam in float32 on minibatches, products with the weights as they would be stored; biases always,
// up always, down unless it is the identity (a full rank). Judged on the held-out tokens after
// every epoch, as it would be stored: returned is the state that lists fewest neurons at the wanted
// recall, the start included; training ends when three epochs in a row were no better. The
// threshold is left at 0: biases include it. The result depends on the data and the options, not on
// the number of threads.
MadePredictor TrainPredictor(Engine& engine, const FfnData& data, const MadePredictor& start,
                             const TrainingOptions& options,
                             const TrainingProgressFn& progress = {});

}  // namespace hearth
