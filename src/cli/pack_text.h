// What `hearth pack --text` learns from a text before it packs: how often neurons fire, and
// predictors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "prepare/predictor_maker.h"
#include "sparsity/profile.h"

namespace hearth::cli {

struct TextLessons {
  ModelProfile profile;
  std::optional<MadePredictors> predictors;  // nothing where neurons are never silent
};

struct TextLessonOptions {
  std::string model;  // a plain GGUF, as CheckPack has found
  std::string text_file;
  std::string state_dir;                // where finished predictors are kept while others are made
  std::optional<ModelProfile> profile;  // of an earlier `hearth profile`: not made again
  std::optional<uint64_t> memory_bytes;
  int threads = 0;
};

// Loads the model and reads the text with it, with progress lines on a terminal. An interruption
// throws Error(kCancelled); the same call continues from state_dir, which is left for the caller to
// remove. Throws Error for everything else that can be wrong with the model or the text.
TextLessons LearnFromText(const TextLessonOptions& options);

// What was learned, as lines for a user.
std::string LessonsText(const TextLessons& lessons);

}  // namespace hearth::cli
