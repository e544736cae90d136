#include "prepare/predict/predictor_memory.h"

#include <algorithm>

#include "base/buffer.h"
#include "prepare/predict/calibration_samples.h"
#include "prepare/predict/layer_predictors.h"
#include "prepare/predict/predictor_set.h"
#include "prepare/predict/trained.h"
#include "prepare/predict/training_free.h"

namespace hearth {
namespace {

// Predictors in float32 at a time.
constexpr int64_t kMadeAtATime = 5;
// Pages that buffers are rounded up to, and small vectors.
constexpr uint64_t kSmallBytes = uint64_t{4} << 20;

}  // namespace

uint64_t MadePredictorBytes(int64_t rank, int64_t hidden, int64_t neurons) {
  return static_cast<uint64_t>(kMadeAtATime * (rank * (hidden + neurons) + neurons)) *
         sizeof(float);
}

PredictorMemory::PredictorMemory(const ModelSpec& spec, const PredictorOptions& options,
                                 uint64_t model_bytes, uint64_t matrix_bytes, int64_t tokens)
    : hidden_(spec.hidden_size),
      neurons_(MainFfn(spec).intermediate_size),
      experts_(ExpertsOf(spec)),
      fit_tokens_(static_cast<int64_t>(static_cast<double>(tokens) * (1 - options.held_out_share))),
      held_tokens_(tokens - fit_tokens_),
      may_train_(options.method != PredictorMethod::kTrainingFree),
      matrix_bytes_(matrix_bytes),
      num_layers_(spec.num_layers),
      dtype_(options.dtype),
      most_kept_(static_cast<uint64_t>(options.max_bytes_share * static_cast<double>(model_bytes))),
      layer_samples_(
          LayerSamples::ChargedBytes(tokens, hidden_, options.input != PredictorInput::kFfnInput)),
      even_rank_(LargestRank(options.dtype,
                             most_kept_ / static_cast<uint64_t>(spec.num_layers * experts_),
                             hidden_, neurons_)) {}

uint64_t PredictorMemory::CopiedBytes(const LayerWeights& layer) {
  return Buffer::ChargedBytes(layer.ffn_gate.expert_bytes()) +
         Buffer::ChargedBytes(layer.ffn_up.expert_bytes());
}

uint64_t PredictorMemory::KeptBytes(int64_t rank) const {
  return std::min(most_kept_, static_cast<uint64_t>(num_layers_ * experts_) *
                                  PredictorBytes(dtype_, rank, hidden_, neurons_));
}

uint64_t PredictorMemory::SampleBytes(uint64_t most) const {
  const uint64_t layers = std::max<uint64_t>(most / layer_samples_, 1);
  return layer_samples_ * std::min(layers, static_cast<uint64_t>(num_layers_));
}

// The steps of prepare/predict/layer_predictors.h one by one, in float32 numbers.
uint64_t PredictorMemory::WorkBytes(int64_t rank) const {
  const int64_t weights = rank * (hidden_ + neurons_);
  const int64_t fit = fit_tokens_ * neurons_, held = held_tokens_ * neurons_;
  // ComputeFfnData; up is gone once the scores are there.
  const int64_t data = (fit_tokens_ + held_tokens_) * hidden_ + 2 * fit + held;
  int64_t most = fit + 2 * held + kTrainingBatchTokens * hidden_;
  // TrainingFreeMaker: the factors of the scores; scores as stored, and thresholds, for which half
  // of the neurons may be active.
  const int64_t factors = weights;
  const int64_t some = std::min(fit_tokens_, TrainingFreeMaker::kMaxFactorTokens);
  most = std::max(most, factors + some * neurons_ + 4 * some * some + rank * some + rank * hidden_ +
                            TrainingFreeMaker::kReadRows * (3 * hidden_ + some));
  most = std::max(most, factors + fit + std::max(fit_tokens_ * rank + weights, fit));
  most = std::max(most, factors + held + std::max(held_tokens_ * rank + weights, held));
  // TrainPredictor: weights, as stored, Adam's averages and gradients; and how it is judged.
  if (may_train_) {
    most = std::max(most, factors + 6 * weights + held + held_tokens_ * rank);
    most = std::max(most, factors + 6 * weights +
                              kTrainingBatchTokens * (2 * hidden_ + 2 * neurons_ + 4 * rank));
    most = std::max(most, factors + 5 * weights + 2 * held);
  }
  // Other experts of the layer wait for it.
  most += (experts_ - 1) * weights;
  return static_cast<uint64_t>(data + most) * sizeof(float) +
         MadePredictorBytes(rank, hidden_, neurons_) + matrix_bytes_ + kSmallBytes;
}

int64_t PredictorMemory::RankWithin(uint64_t bytes) const {
  const auto fits = [&](int64_t rank) { return WorkBytes(rank) + KeptBytes(rank) <= bytes; };
  int64_t rank = 0;
  while (rank + kRankUnit <= hidden_ && fits(rank + kRankUnit)) rank += kRankUnit;
  return rank;
}

}  // namespace hearth
