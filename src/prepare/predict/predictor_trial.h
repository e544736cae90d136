// How good a predictor is as it will be stored, on tokens it was not made from; and the thresholds
// that meet a wanted recall.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "prepare/predict/ffn_data.h"
#include "prepare/predict/float_matrix.h"
#include "prepare/predict/predictor_set.h"

namespace hearth {

// Of one predictor and threshold over the tokens it was judged by. Listed: predicted to be active.
struct TrialFigures {
  double recall = 0;     // of the mass of active neurons, what is listed
  double precision = 0;  // of the listed, those that are active
  double active = 0;     // share of neurons, over tokens
  double listed = 0;     // likewise
  double listed_ratio() const { return active > 0 ? listed / active : 0; }
};

// out = the values that weights [rows][cols] have once they are stored.
void StoreAndRead(Compute& compute, DType dtype, FloatView in, FloatMatrix& out);

// A predictor whose down and up have the values that they will have when stored.
class StoredPredictor {
 public:
  StoredPredictor(Engine& engine, const MadePredictor& made, int64_t hidden, DType dtype);

  // scores[t][n] = up * (down * x[t]), without bias.
  void Score(const FloatMatrix& inputs, FloatMatrix& scores) const;
  // The same for one input.
  std::vector<float> Score(std::span<const float> input) const;

 private:
  Engine& engine_;
  FloatMatrix down_;  // [rank][hidden]
  FloatMatrix up_;    // [neurons][rank]
};

// Adds bias[n] to every row.
void AddBias(Compute& compute, std::span<const float> bias, FloatMatrix& scores);

// The highest threshold that lists at least `recall` of the mass, 0 < recall <= 1. Neurons with a
// score of exactly the threshold are not listed.
float ThresholdFor(const FloatMatrix& scores, const FloatMatrix& mass, double recall);

// What an active neuron carries; nothing where none is active.
std::optional<double> MeanActiveMass(const FloatMatrix& mass);

TrialFigures Judge(const FloatMatrix& scores, const FloatMatrix& mass, float threshold);

}  // namespace hearth
