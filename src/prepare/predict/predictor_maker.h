// `pack` makes a model's predictors here, from the model and a text alone (P1 §5.1).
//
// The model reads the text densely; what enters its FFNs is kept, as many layers at a time as the
// memory for samples allows. Each layer then gets a predictor that is made from its own weights
// (prepare/predict/training_free.h), starting at a rank that its sparsity suggests and shrunk or
// grown until a wanted recall is met with few neurons too many; where no rank in the layer's share
// of the bytes does that, it is trained from there (prepare/predict/trained.h). Thresholds are set
// on the last part of the text, which nothing is made from, with weights as they will be stored. At
// the end the model reads that part with its predictors; where its perplexity moves by more than
// allowed, the wanted recall is raised in steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "prepare/predict/predictor_quality.h"
#include "prepare/predict/predictor_set.h"
#include "prepare/predict/predictor_trial.h"

namespace hearth {

enum class PredictorMethod : uint8_t {
  kBest,          // training-free; trained where that is not enough
  kTrainingFree,  // never trained
  kTrained,       // always trained
};

struct PredictorOptions {
  PredictorMethod method = PredictorMethod::kBest;
  DType dtype = DType::kQ4_0;            // of down and up: at the same bytes, twice Q8_0's rank
  double recall = 0.995;                 // of activation mass, at least
  double max_perplexity_change = 0.001;  // on the held-out text
  // Neurons listed for one that is active, at half the loss of recall: what ranks grow to reach.
  double max_listed_ratio = 1.2;
  double max_bytes_share = 0.10;        // of all predictors, of the model's bytes
  uint64_t model_bytes = 0;             // those of the model to be run; 0: as the engine holds it
  std::optional<PredictorInput> input;  // nothing: what measures better on one layer
  int64_t max_tokens = 0;  // of the text, spread over it; 0: as many as the FFN's size suggests
  double held_out_share = 0.2;
  uint64_t sample_bytes = uint64_t{1} << 30;  // for samples at a time; at least one layer's
  int64_t max_layers = 0;                     // only the first so many; 0: all
  // Where finished layers are kept, a file each, so that an interrupted run goes on where it was;
  // empty: nowhere. An existing folder. Its files are left for the caller to remove.
  std::string state_dir;
};

// Tokens of a text that predictors are made from unless options say otherwise, and the fewest that
// this is for any model.
int64_t DefaultPredictorTokens(const ModelSpec& spec);
inline constexpr int64_t kFewPredictorTokens = 2048;

// How far it is. `what` says what is being done ("layer 3: rank 256").
struct PredictorProgress {
  std::string what;
  double done = 0;                    // share of all work, 0 to 1
  std::optional<double> eta_seconds;  // nothing until a layer is done
};
// Called often, on the calling thread. May throw, to cancel: finished layers stay in state_dir.
using PredictorProgressFn = std::function<void(const PredictorProgress&)>;

// One FFN's predictor, judged on the held-out text at the recall that was chosen in the end.
struct PredictorReport {
  int64_t layer = 0;
  int64_t expert = 0;
  int64_t rank = 0;  // 0: none was worth having
  bool trained = false;
  TrialFigures figures;
  uint64_t bytes = 0;
  double seconds = 0;  // that the layer took, with its first expert
};

struct MadePredictors {
  PredictorSet set;
  std::vector<PredictorReport> reports;  // [layer][expert]
  double recall = 0;                     // that thresholds were set for
  PredictionQuality quality;  // of the whole, on the held-out text, which thresholds are tuned on
  uint64_t bytes = 0;
  double bytes_share = 0;  // of the model's
  double macs_share = 0;   // multiply-adds of predictors, of those of a dense token
};

// What the set costs over a text that it was neither made from nor tuned on. Beside the engine this
// charges what trying them took when they were made. Throws as MeasurePrediction does, and
// Error(kOutOfBudget).
PredictionQuality TryPredictors(Engine& engine, const PredictorSet& set,
                                std::span<const TokenId> tokens,
                                const QualityProgressFn& progress = {});

// Whether predictors are good enough to be used unasked: they find 99% of the activation mass and
// move the perplexity by no more than the options allow.
bool MeetTargets(const PredictionQuality& quality, const PredictorOptions& options);

// Throws Error where options.state_dir holds finished layers that MakePredictors, called with the
// same, would refuse: better known before hours of other work.
void CheckPredictorState(const Engine& engine, std::span<const TokenId> tokens,
                         const PredictorOptions& options);

// `tokens` is a text without BOS. The engine holds a plain (unpacked) model with a ReLU-family
// activation, in memory or streamed; its budget is charged for what the work takes
// (prepare/predict/predictor_memory.h). The result depends on the model, the text, the context of
// the engine and the options, not on the number of threads or on interruptions, nor on memory
// unless there is too little for the rank that a layer would get. Throws Error: kUnsupported for a
// packed model, an activation that is never silent or a shape the type cannot store;
// kInvalidArgument for a text that is too short or state of other work in state_dir; kCorrupt for
// altered state; kOutOfBudget; kIo.
MadePredictors MakePredictors(Engine& engine, std::span<const TokenId> tokens,
                              const PredictorOptions& options,
                              const PredictorProgressFn& progress = {});

}  // namespace hearth
