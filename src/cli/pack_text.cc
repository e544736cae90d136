#include "cli/pack_text.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "format/packed_file.h"
#include "ops/sparse_ffn.h"
#include "prepare/profiler.h"

namespace hearth::cli {
namespace {

ModelProfile ProfileText(Engine& engine, std::span<const TokenId> tokens,
                         const std::string& model) {
  ModelProfile profile =
      PlanProfile(engine.model().spec(), ModelHash(GgufFile::Open(model)), tokens,
                  {.bos = engine.model().tokenizer().special().bos,
                   .context = engine.context(),
                   .kv_dtype = engine.forward().limits().kv_dtype});
  ProgressLine progress("profiling", ProgressUnit::kTokens);
  ProfileRunOptions run;
  run.cancel = &InterruptFlag();
  run.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
  RunProfile(engine, tokens, profile, run);
  if (!profile.complete()) {
    throw Error(ErrorCode::kCancelled, model, "interrupted while profiling, nothing was written");
  }
  return profile;
}

// With a folder for finished layers, whose layers of before fit this work.
PredictorOptions PreparePredictors(Engine& engine, std::span<const TokenId> tokens,
                                   const std::string& state_dir) {
  std::error_code failure;
  std::filesystem::create_directories(state_dir, failure);
  if (failure) throw Error(ErrorCode::kIo, state_dir, failure.message());
  PredictorOptions options;
  options.state_dir = state_dir;
  CheckPredictorState(engine, tokens, options);
  return options;
}

MadePredictors MakeFromText(Engine& engine, std::span<const TokenId> tokens,
                            const PredictorOptions& options) {
  ProgressLine progress("predictors", ProgressUnit::kShare);
  return MakePredictors(engine, tokens, options, [&](const PredictorProgress& now) {
    if (InterruptFlag()) {
      throw Error(ErrorCode::kCancelled, options.state_dir,
                  "interrupted; the same command continues after the layers that are done");
    }
    progress.UpdateShare(now.done, now.what, now.eta_seconds);
  });
}

TextScore ScoreSource(Engine& engine, std::span<const TokenId> sample) {
  ProgressLine line("scoring", ProgressUnit::kTokens);
  ScoreOptions options;
  options.bos = engine.model().tokenizer().special().bos;
  options.context = std::min(engine.context(), kSampleContext);
  options.model = engine.model().path();
  options.progress = [&](uint64_t done, uint64_t all) {
    StopWhereInterrupted(options.model);
    line.Update(done, all);
  };
  return ScoreText(engine.forward(), engine.kv_pool(), engine.selector(), sample, options);
}

SiluCalibration Calibrate(Engine& engine, std::span<const TokenId> tokens, double max_change) {
  ProgressLine line("thresholds", ProgressUnit::kTokens);
  return CalibrateSilu(engine, tokens, max_change, [&](uint64_t done, uint64_t all) {
    StopWhereInterrupted(engine.model().path());
    line.Update(done, all);
  });
}

}  // namespace

TextLessons LearnFromText(const TextLessonOptions& options) {
  const std::string text = ReadTextFile(options.text_file);
  ModelOptions model;
  model.model = options.model;
  model.memory_bytes = options.memory_bytes;
  model.threads = options.threads;
  model.may_stream = false;  // what is learned needs all weights
  auto engine = LoadEngine(model);
  const std::vector<TokenId> tokens = engine->model().tokenizer().Encode(text);
  if (tokens.empty()) {
    throw Error(ErrorCode::kInvalidArgument, options.text_file,
                "the text is empty: there is nothing to learn from");
  }
  const bool makes_predictors =
      CanSkipNeurons(engine->model().spec().layers.front().ffn.activation) && !options.silu_change;
  PredictorOptions predictors;
  if (makes_predictors) predictors = PreparePredictors(*engine, tokens, options.state_dir);
  TextLessons lessons;
  lessons.sample = SampleToScore(tokens);
  if (options.silu_change) {
    lessons.silu = Calibrate(*engine, tokens, *options.silu_change);
    lessons.source = lessons.silu->before;
    engine.reset();  // two do not fit
    model.silu_thresholds = lessons.silu->thresholds;
    engine = LoadEngine(model);
  } else {
    lessons.source = ScoreSource(*engine, lessons.sample);
  }
  lessons.profile =
      options.profile ? *options.profile : ProfileText(*engine, tokens, options.model);
  if (makes_predictors) {
    lessons.predictors = MakeFromText(*engine, tokens, predictors);
    lessons.predictors_are_good = MeetTargets(*lessons.predictors, {});
  }
  return lessons;
}

}  // namespace hearth::cli
