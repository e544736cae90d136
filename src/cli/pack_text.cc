#include "cli/pack_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "format/packed_file.h"
#include "ops/sparse_ffn.h"
#include "prepare/profiler.h"
#include "sparsity/profile_stats.h"
#include "tensor/op_names.h"

namespace hearth::cli {
namespace {

// Where more neurons than this are active, computing only those gains nothing in memory.
constexpr double kSparseShare = 0.5;
// The progress of predictors is a share; the line wants counts.
constexpr double kProgressSteps = 1000;

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

MadePredictors MakeFromText(Engine& engine, std::span<const TokenId> tokens,
                            const std::string& state_dir) {
  std::error_code failure;
  std::filesystem::create_directories(state_dir, failure);
  if (failure) throw Error(ErrorCode::kIo, state_dir, failure.message());
  PredictorOptions options;
  options.state_dir = state_dir;
  ProgressLine progress("predictors", ProgressUnit::kShare);
  return MakePredictors(engine, tokens, options, [&](const PredictorProgress& now) {
    if (InterruptFlag()) {
      throw Error(ErrorCode::kCancelled, state_dir,
                  "interrupted; the same command continues after the layers that are done");
    }
    progress.Update(static_cast<uint64_t>(now.done * kProgressSteps),
                    static_cast<uint64_t>(kProgressSteps), now.what);
  });
}

}  // namespace

TextLessons LearnFromText(const TextLessonOptions& options) {
  const std::string text = ReadTextFile(options.text_file);
  ModelOptions model;
  model.model = options.model;
  model.memory_bytes = options.memory_bytes;
  model.threads = options.threads;
  const auto engine = LoadEngine(model);
  const std::vector<TokenId> tokens = engine->model().tokenizer().Encode(text);
  if (tokens.empty()) {
    throw Error(ErrorCode::kInvalidArgument, options.text_file,
                "the text is empty: there is nothing to learn from");
  }
  TextLessons lessons;
  lessons.profile =
      options.profile ? *options.profile : ProfileText(*engine, tokens, options.model);
  if (CanSkipNeurons(engine->model().spec().layers.front().ffn.activation)) {
    lessons.predictors = MakeFromText(*engine, tokens, options.state_dir);
  }
  return lessons;
}

std::string LessonsText(const TextLessons& lessons) {
  if (!lessons.predictors) {
    return "no neuron of this model is ever silent: there are no predictors, and packing only "
           "helps streaming\n";
  }
  const ActivationSummary summary = Summarize(lessons.profile, -1);
  const MadePredictors& made = *lessons.predictors;
  const ListQuality quality = made.quality.Total();
  std::string text = fmt::format(
      "{:.1f}% of neurons are active; predictors list {:.1f}%, find {:.2f}% of the activation and "
      "move perplexity by {:+.2f}%, {} ({:.1f}% of the model)\n",
      100 * summary.active_rate, 100 * quality.computed_share(), 100 * quality.recall(),
      100 * (made.quality.perplexity_ratio() - 1), FormatSize(made.bytes), 100 * made.bytes_share);
  if (summary.active_rate > kSparseShare) {
    text += "so many are active that packing will only help streaming\n";
  }
  return text;
}

}  // namespace hearth::cli
