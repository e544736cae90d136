#include "cli/pack/pack_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "cli/options/model_options.h"
#include "cli/options/text_input.h"
#include "cli/pack/activation_check.h"
#include "cli/plan/learned_accesses.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "engine/load/engine_plan.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "model/registry.h"
#include "ops/sparse_ffn.h"
#include "prepare/pack/text_parts.h"
#include "prepare/predict/learning_plan.h"
#include "prepare/predict/predictor_state.h"
#include "prepare/profile/profiler.h"
#include "tensor/op_names.h"

namespace hearth::cli {
namespace {

std::string ProfileIn(const std::string& state_dir) { return state_dir + "/profile"; }

// Goes on from a profile of the same run in state_dir, and keeps there what it has; state_dir may
// be empty.
ModelProfile ProfileText(Engine& engine, std::span<const TokenId> tokens,
                         const TextLessonOptions& options, const std::string& state_dir) {
  ModelProfile profile =
      PlanProfile(engine.model().spec(), ModelHash(engine.model().Reopen()), tokens,
                  {.bos = engine.model().tokenizer().special().bos,
                   .context = engine.context(),
                   .kv_codec = engine.pass().limits().kv_codec});
  ProfileRunOptions run;
  if (!state_dir.empty()) {
    const std::string path = ProfileIn(state_dir);
    if (std::filesystem::exists(path)) {
      ModelProfile saved = LoadProfile(path);
      if (DifferenceOfRuns(saved, profile).empty()) profile = std::move(saved);
    }
    run.save = [path](const ModelProfile& so_far) { SaveProfile(so_far, path); };
  }
  ProgressLine progress("profiling", ProgressUnit::kTokens, profile.text_tokens);
  run.cancel = &InterruptFlag();
  run.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
  RunProfile(engine, tokens, profile, run);
  if (!profile.complete()) {
    throw Error(ErrorCode::kCancelled, options.model,
                state_dir.empty() ? "interrupted while profiling, nothing was written"
                                  : "interrupted while profiling; the same command continues");
  }
  return profile;
}

void MakeFolder(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) throw Error(ErrorCode::kIo, path, failure.message());
}

std::vector<TokenId> EncodeText(const GgufFile& file, const std::string& text_file) {
  std::vector<TokenId> tokens =
      Tokenizer::FromGguf(file.metadata())->Encode(ReadTextFile(text_file));
  if (!tokens.empty()) return tokens;
  throw Error(ErrorCode::kInvalidArgument, text_file,
              "the text is empty: there is nothing to learn from");
}

bool MakesPredictors(const GgufFile& file, const TextLessonOptions& options) {
  return !options.silu_change && CanSkipNeurons(MainFfn(ReadModelSpec(file)).activation);
}

LearningPlan PlanMemory(const GgufFile& file, int64_t text_tokens,
                        const TextLessonOptions& options) {
  const EngineOptions engine = {.memory_bytes = options.memory_bytes, .threads = options.threads};
  return PlanLearning(file, engine, {.method = options.predictors}, text_tokens);
}

// Shares out the memory between the model and what is learned, and says what is given up.
void ShareMemory(const GgufFile& file, const LearningPlan& plan, ModelOptions& model,
                 PredictorOptions& predictors) {
  model.context = plan.context;
  model.reserved_bytes = plan.reserved_bytes;
  predictors.max_tokens = plan.max_tokens;
  predictors.sample_bytes = plan.sample_bytes;
  if (plan.takes_fewer_tokens) {
    PrintNotice(fmt::format(
        "there is memory to make predictors from {} tokens of the text, where {} would be better\n",
        plan.max_tokens, DefaultPredictorTokens(ReadModelSpec(file))));
  }
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

PredictionQuality JudgePredictors(Engine& engine, const PredictorSet& set,
                                  std::span<const TokenId> sample) {
  ProgressLine line("judging predictors", ProgressUnit::kShare);
  return TryPredictors(engine, set, sample, [&](uint64_t done, uint64_t all) {
    StopWhereInterrupted(engine.model().path());
    line.UpdateShare(static_cast<double>(done) / static_cast<double>(all));
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
  return ScoreText(engine.pass(), engine.kv_pool(), engine.selector(), sample, options);
}

// Of an engine whose thresholds are sought: with a context that does not follow from the memory, so
// that what is reserved does not either. Throws Error(kOutOfBudget) where that does not fit, some
// drift of the program included, so that what is named as enough is.
EngineOptions CalibrationOptions(const GgufFile& file, const TextLessonOptions& options) {
  EngineOptions engine = {.memory_bytes = options.memory_bytes,
                          .threads = options.threads,
                          .context = std::min(ReadModelSpec(file).context_length, kSampleContext)};
  const uint64_t reserved_bytes = SiluCalibrationBytes(file, engine);
  engine.reserved_bytes = reserved_bytes + LearningPlan::kDriftBytes;
  CheckBudget(PlanEngine(file, engine), options.model);
  engine.reserved_bytes = reserved_bytes;
  return engine;
}

SiluCalibration Calibrate(Engine& engine, std::span<const TokenId> tokens, double max_change) {
  ProgressLine line("thresholds", ProgressUnit::kTokens);
  return CalibrateSilu(engine, tokens, max_change, [&](uint64_t done, uint64_t all) {
    StopWhereInterrupted(engine.model().path());
    line.Update(done, all);
  });
}

ModelOptions SourceOptions(const TextLessonOptions& options) {
  ModelOptions model;
  model.model = options.model;
  model.memory_bytes = options.memory_bytes;
  model.threads = options.threads;
  model.activation = options.activation;
  model.advises = false;
  model.doubts = false;  // pack has warned
  return model;
}

// Where neither the activation nor thresholds leave anything out, unless that is what is wanted.
void RefuseWithoutSilence(const Engine& engine, const TextLessonOptions& options,
                          const TextLessons& lessons) {
  const FfnActivation activation = MainFfn(engine.model().spec()).activation;
  const bool fits = !lessons.activations || !lessons.activations->better;
  if (!CanSkipNeurons(activation) && !options.silu_change && !options.is_forced && fits) {
    RefuseToPack(options.model, activation);
  }
}

}  // namespace

void CheckLearningMemory(const TextLessonOptions& options) {
  const GgufFile file = OpenModel(options.model, options.activation);
  if (options.silu_change) {
    CalibrationOptions(file, options);
  } else if (MakesPredictors(file, options)) {
    const std::vector<TokenId> tokens = EncodeText(file, options.text_file);
    PlanMemory(file, std::ssize(SplitText(tokens).first), options);
  }
}

void RefuseToPack(const std::string& model, FfnActivation activation) {
  throw Error(
      ErrorCode::kUnsupported, model,
      fmt::format("with {} every neuron adds something, so that packed it takes more room and "
                  "time than now: run it as it is, leave out its quietest neurons with "
                  "--silu-threshold 1%, or pack it all the same with --force",
                  FfnActivationName(activation)));
}

TextLessons LearnFromText(const TextLessonOptions& options) {
  const GgufFile file = OpenModel(options.model, options.activation);
  const std::vector<TokenId> tokens = EncodeText(file, options.text_file);
  const TextParts text = SplitText(tokens);
  const bool makes_predictors = MakesPredictors(file, options);
  ModelOptions model = SourceOptions(options);
  PredictorOptions predictors = {.method = options.predictors};
  if (makes_predictors) {
    MakeFolder(options.state_dir);
    predictors.state_dir = options.state_dir;
    ShareMemory(file, PlanMemory(file, std::ssize(text.first), options), model, predictors);
  } else if (options.silu_change) {
    const EngineOptions engine = CalibrationOptions(file, options);
    model.context = engine.context;
    model.reserved_bytes = engine.reserved_bytes;
  }
  auto engine = LoadEngine(model);
  if (engine->is_streamed()) {
    PrintNotice("the model is larger than this memory: it is read from storage again and again\n");
  }
  if (makes_predictors) CheckPredictorState(*engine, text.first, predictors);
  TextLessons lessons;
  lessons.sample = SampleToScore(text.last);
  lessons.is_unseen = text.are_apart();
  const int64_t most = std::min(kTokensToLearnFrom, ReadModelSpec(file).context_length);
  const auto beginning =
      text.first.first(static_cast<size_t>(std::min(most, std::ssize(text.first))));
  lessons.beginning.assign(beginning.begin(), beginning.end());
  lessons.activations = CheckActivation(*engine, SampleToScore(text.first));
  RefuseWithoutSilence(*engine, options, lessons);
  lessons.source = ScoreSource(*engine, lessons.sample);
  if (options.silu_change) {
    lessons.silu = Calibrate(*engine, text.first, *options.silu_change);
    engine.reset();  // two do not fit
    model.reserved_bytes = 0;
    model.silu_thresholds = lessons.silu->thresholds;
    engine = LoadEngine(model);
    lessons.thresholded = ScoreSource(*engine, lessons.sample);
  }
  lessons.profile = options.profile
                        ? *options.profile
                        : ProfileText(*engine, text.first, options, predictors.state_dir);
  if (makes_predictors) {
    lessons.predictors = MakeFromText(*engine, text.first, predictors);
    lessons.predicted = JudgePredictors(*engine, lessons.predictors->set, lessons.sample);
    lessons.predictors_are_good = MeetTargets(*lessons.predicted, {});
  }
  return lessons;
}

void ForgetLessons(const std::string& state_dir, int64_t layers) {
  std::error_code ignored;
  std::filesystem::remove(ProfileIn(state_dir), ignored);
  PredictorState::Remove(state_dir, layers);
}

}  // namespace hearth::cli
