// How `pack --text` learns from a text within a memory limit: what the engine gets, what is kept
// free for making predictors, and what is given up where both do not fit.
#pragma once

#include <cstdint>

#include "engine/load/engine_options.h"
#include "format/gguf.h"
#include "prepare/predict/predictor_maker.h"

namespace hearth {

struct LearningPlan {
  // The program may take so much more when the model is loaded than when this is planned.
  static constexpr uint64_t kDriftBytes = uint64_t{8} << 20;

  int64_t context = 0;              // tokens of the windows that the text is read in
  int64_t max_tokens = 0;           // PredictorOptions::max_tokens
  uint64_t sample_bytes = 0;        // PredictorOptions::sample_bytes
  uint64_t reserved_bytes = 0;      // EngineOptions::reserved_bytes
  bool takes_fewer_tokens = false;  // than predictors of this model are made from elsewhere
};

// For a model that is not packed and a text of so many tokens. The engine may stream the model's
// FFNs; where even the least it takes leaves too little, the text is read in shorter windows, and
// then predictors are made from fewer tokens. Throws Error(kOutOfBudget), with the smallest limit
// that would do, where nothing of this helps.
LearningPlan PlanLearning(const GgufFile& file, EngineOptions engine,
                          const PredictorOptions& options, int64_t text_tokens);

}  // namespace hearth
