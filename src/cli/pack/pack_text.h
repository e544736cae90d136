// What `hearth pack --text` learns from a text before it packs: how often neurons fire, how well
// the model foresees it, and thresholds or predictors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/evaluate.h"
#include "model/given_activation.h"
#include "prepare/pack/silu_thresholds.h"
#include "prepare/predict/predictor_maker.h"
#include "prepare/profile/activation_trial.h"
#include "sparsity/profile.h"

namespace hearth::cli {

struct TextLessons {
  ModelProfile profile;
  // SampleToScore of the part of the text that everything is judged on (prepare/pack/text_parts.h).
  std::vector<TokenId> sample;
  bool is_unseen = false;                      // nothing else below was learned from that part
  std::vector<TokenId> beginning;              // of the text, to learn from what a token needs
  TextScore source;                            // of the sample, by the model as it is
  std::optional<ActivationTrial> activations;  // where the file does not say its own
  std::optional<SiluCalibration> silu;         // where it was asked for
  std::optional<TextScore> thresholded;        // then of the sample, by the source with thresholds
  std::optional<MadePredictors> predictors;    // nothing for SiLU
  std::optional<PredictionQuality> predicted;  // of the sample, with them
  bool predictors_are_good = false;            // MeetTargets of that
};

struct TextLessonOptions {
  std::string model;  // a plain GGUF, as CheckPack has found
  std::string text_file;
  std::string state_dir;  // keeps the profile and finished predictors while others are made
  std::optional<ModelProfile> profile;  // of an earlier `hearth profile`: not made again
  // Of a SiLU model: set thresholds that move the perplexity by at most this. The profile is then
  // that of the model with them. Not together with `profile`.
  std::optional<double> silu_change;
  PredictorMethod predictors = PredictorMethod::kBest;
  std::optional<GivenActivation> activation;  // as EngineOptions has it
  bool is_forced = false;  // learn from a model in which every neuron adds something too
  std::optional<uint64_t> memory_bytes;
  int threads = 0;
};

// Throws Error(kOutOfBudget), with the smallest limit that would do, where LearnFromText would.
void CheckLearningMemory(const TextLessonOptions& options);

// Throws Error(kUnsupported): packed, a model with this activation takes more memory and time than
// before.
[[noreturn]] void RefuseToPack(const std::string& model, FfnActivation activation);

// Loads the model and reads the text with it, with progress lines on a terminal. An interruption
// throws Error(kCancelled); the same call continues from state_dir, which is left for the caller to
// remove. Throws Error for everything else that can be wrong with the model or the text.
TextLessons LearnFromText(const TextLessonOptions& options);

// Removes what is in state_dir of a model of so many layers, and the folder unless it holds
// anything else. Failures are ignored.
void ForgetLessons(const std::string& state_dir, int64_t layers);

}  // namespace hearth::cli
