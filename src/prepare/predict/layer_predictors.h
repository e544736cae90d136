// The predictors of one layer: as many as it has experts, of one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "prepare/predict/calibration_samples.h"
#include "prepare/predict/predictor_maker.h"
#include "prepare/predict/predictor_set.h"
#include "prepare/predict/predictor_trial.h"

namespace hearth {

// A predictor with a threshold and figures for every wanted recall.
struct JudgedPredictor {
  MadePredictor made;  // threshold: the first
  bool trained = false;
  std::vector<float> thresholds;
  std::vector<TrialFigures> figures;
};

struct LayerPredictors {
  std::vector<JudgedPredictor> experts;
  double seconds = 0;
};

// The recalls that thresholds are kept for: the wanted one, and what leaves a half, a quarter and a
// tenth of its loss.
std::vector<double> RecallSteps(double recall);

// Bytes of one FFN's predictor in a file.
uint64_t PredictorBytes(DType dtype, int64_t rank, int64_t hidden, int64_t neurons);

// The largest rank that these bytes have room for, a multiple of it and at most the hidden size.
int64_t LargestRank(DType dtype, uint64_t bytes, int64_t hidden, int64_t neurons);

// Called with what is being done, at every change.
using LayerProgressFn = std::function<void(const std::string& what, double done)>;

// What all layers share.
struct LayerTask {
  Engine& engine;
  const PredictorOptions& options;
  PredictorInput input = PredictorInput::kFfnInput;
  int64_t held_from = 0;  // first held-out token
  int64_t max_rank = 0;   // that there is memory to make
};

// Makes the predictors of one layer, each of at most `bytes`.
LayerPredictors MakeLayerPredictors(const LayerTask& task, const LayerSamples& samples,
                                    int64_t layer, uint64_t bytes, const LayerProgressFn& progress);

// The input that lists fewer neurons at the largest rank: of one layer whose samples have both.
PredictorInput ChooseInput(const LayerTask& task, const LayerSamples& samples, int64_t layer,
                           uint64_t bytes);

}  // namespace hearth
