#include "cli/pack/pack_trial.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/options/model_options.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/progress.h"
#include "measure/bench.h"
#include "model/registry.h"

namespace hearth::cli {
namespace {

constexpr char kTooLarge[] = "the packed file does not fit into memory as a whole";

// Null where it cannot be run, or not be held in memory as a whole and there is nothing to score;
// `missing` says which.
std::unique_ptr<Engine> TryLoading(const std::string& path, const PackTrialOptions& options,
                                   std::string& missing) {
  ModelOptions model;
  model.model = path;
  model.memory_bytes = options.memory_bytes;
  model.may_stream = !options.sample.empty();
  model.advises = false;
  model.doubts = false;  // pack has warned
  model.threads = options.threads;
  model.mode = options.allowed.back();
  model.context = std::min(ReadModelSpec(GgufFile::Open(path)).context_length, kSampleContext);
  try {
    return LoadEngine(model);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kOutOfBudget) {
      missing = kTooLarge;
    } else if (error.code() == ErrorCode::kUnsupported) {
      missing = "this program cannot run the packed file";
    } else {
      throw;
    }
  }
  return nullptr;
}

// Exactly, whatever predictors there are: they say themselves what they cost.
TextScore ScorePacked(Engine& engine, const PackTrialOptions& options) {
  const bool can_skip = options.allowed.back() != FfnMode::kDense;
  DenseSelector exact(can_skip ? FfnMode::kGated : FfnMode::kDense);
  ProgressLine line("scoring the packed file", ProgressUnit::kTokens);
  ScoreOptions score;
  score.bos = engine.model().tokenizer().special().bos;
  score.context = engine.context();
  score.model = engine.model().path();
  score.progress = [&](uint64_t done, uint64_t all) {
    StopWhereInterrupted("pack");
    line.Update(done, all);
  };
  return ScoreText(engine.pass(), engine.kv_pool(), exact, options.sample, score);
}

std::vector<ModeSpeed> MeasureSpeeds(Engine& engine, const PackTrialOptions& options) {
  std::vector<TokenId> tokens = options.sample;
  if (std::ssize(tokens) < kModeTokens) tokens = BenchTokens(engine.model(), kModeTokens);
  ProgressLine line("measuring modes", ProgressUnit::kShare);
  return MeasureModes(engine, tokens, options.allowed, [&](double done) {
    StopWhereInterrupted("pack");
    line.UpdateShare(done);
  });
}

}  // namespace

PackTrial TryPackedFile(const std::string& path, const PackTrialOptions& options) {
  PackTrial trial;
  trial.mode = options.mode.value_or(options.allowed.back());
  const bool chooses = !options.mode && options.allowed.size() > 1;
  if (!chooses && options.sample.empty()) return trial;
  const std::unique_ptr<Engine> engine = TryLoading(path, options, trial.missing);
  if (!engine) return trial;
  if (!options.sample.empty()) trial.score = ScorePacked(*engine, options);
  if (!chooses) return trial;
  if (engine->is_streamed()) {
    trial.missing = kTooLarge;
    return trial;
  }
  if (engine->context() < kModeTokens) {
    trial.missing = "the model's context is too short to measure speeds in";
    return trial;
  }
  trial.speeds = MeasureSpeeds(*engine, options);
  trial.mode = ChooseMode(trial.speeds);
  return trial;
}

}  // namespace hearth::cli
