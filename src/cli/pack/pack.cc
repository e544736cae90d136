// hearth pack: a packed file from a plain model file.
#include "prepare/pack/pack.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/command_files.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/pack/pack_report.h"
#include "cli/pack/pack_text.h"
#include "cli/plan/learned_accesses.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "engine/load/ffn_mode.h"
#include "engine/load/model.h"
#include "format/packed_file.h"
#include "import/hugging_face.h"
#include "import/open_model.h"
#include "model/registry.h"
#include "ops/silent_gates.h"

namespace hearth::cli {
namespace {

struct PackCommandOptions {
  std::string source;
  std::string output;
  std::string profile;
  std::string text_file;
  std::optional<DType> quant;
  std::optional<double> silu_change;
  std::optional<PredictorMethod> predictors;
  std::optional<FfnMode> mode;  // nothing: measured
  std::optional<GivenActivation> activation;
  std::optional<uint64_t> memory_bytes;
  int threads = 0;
  bool is_forced = false;
  bool json = false;
};

// Where finished predictors wait for the others.
std::string StateFolder(const PackCommandOptions& options) {
  return options.output + ".predictors";
}

DType ParseBundleType(const std::string& name) {
  const std::optional<DType> type = DTypeFromName(name);
  if (type && CanBundle(*type)) return *type;
  throw UsageError("--quant: expected q4_0, q4_1, q8_0 or f16, found '" + Printable(name) + "'");
}

PredictorMethod ParseMethod(const std::string& name) {
  if (name == "auto") return PredictorMethod::kBest;
  if (name == "computed") return PredictorMethod::kTrainingFree;
  if (name == "trained") return PredictorMethod::kTrained;
  throw UsageError("--predictor: expected auto, computed or trained, found '" + Printable(name) +
                   "'");
}

// "0.5%" or "0.005": a share over 0 and at most 1.
double ParseChange(const std::string& text) {
  double change = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, change);
  const bool is_percent = stop + 1 == end && *stop == '%';
  if (is_percent) change /= 100;
  if (error != std::errc() || !(is_percent || stop == end) || !(change > 0 && change <= 1)) {
    throw UsageError("--silu-threshold: expected a change of perplexity like 0.5%, found '" +
                     Printable(text) + "'");
  }
  return change;
}

// What a user should know of the order that the neurons will have.
void PrintAboutOrder(const PackCommandOptions& options, const ModelProfile* profile) {
  if (profile == nullptr) {
    PrintNotice(
        "no --text and no --profile: neurons lie in their original order, and there are no "
        "predictors\n");
  } else if (!profile->complete()) {
    PrintNotice(fmt::format("{} holds {} of its {} tokens: it was interrupted\n", options.profile,
                            profile->text_tokens, profile->total_tokens));
  }
}

TextLessonOptions LessonOptions(const PackCommandOptions& options) {
  TextLessonOptions learn;
  learn.model = options.source;
  learn.text_file = options.text_file;
  learn.state_dir = StateFolder(options);
  learn.silu_change = options.silu_change;
  learn.predictors = options.predictors.value_or(PredictorMethod::kBest);
  learn.activation = options.activation;
  learn.memory_bytes = options.memory_bytes;
  learn.is_forced = options.is_forced;
  learn.threads = options.threads;
  return learn;
}

TextLessons Learn(const PackCommandOptions& options, const std::optional<ModelProfile>& profile) {
  TextLessonOptions learn = LessonOptions(options);
  learn.profile = profile;
  try {
    return LearnFromText(learn);
  } catch (...) {
    rmdir(learn.state_dir.c_str());  // stays where a layer is in it, to be continued from
    throw;
  }
}

// The modes that `auto` may be: predicted only with predictors that are as good as promised.
std::vector<FfnMode> AllowedModes(const GgufFile& source,
                                  const std::optional<TextLessons>& lessons) {
  FfnActivation activation = MainFfn(ReadModelSpec(source)).activation;
  if (lessons && lessons->silu) activation = FfnActivation::kThresholdedSilu;
  return ModesOfPacked(activation, lessons && lessons->predictors_are_good);
}

// What a user cannot have got right, found before anything is read.
void CheckPackUsage(const PackCommandOptions& options) {
  if (options.text_file.empty()) {
    if (options.silu_change) {
      throw UsageError("--silu-threshold: there is no --text to find thresholds with");
    }
    if (options.mode == FfnMode::kPredicted) {
      throw UsageError("--mode predicted: there is no --text to make predictors from");
    }
    if (options.predictors) {
      throw UsageError("--predictor: there is no --text to make predictors from");
    }
  }
  if (options.silu_change && options.predictors) {
    throw UsageError(
        "--predictor has no effect with --silu-threshold: then the gates tell which neurons fire");
  }
  if (options.silu_change && !options.profile.empty()) {
    throw UsageError("--silu-threshold: neurons fire otherwise then than --profile says");
  }
}

// Before hours of work.
void CheckBeforeLearning(const GgufFile& source, PackOptions pack,
                         const PackCommandOptions& options) {
  // Neither predictors nor thresholds are there yet, and some models will never have any.
  const FfnActivation activation = MainFfn(ReadModelSpec(source)).activation;
  const bool will_predict = options.mode == FfnMode::kPredicted && CanSkipNeurons(activation);
  if (!will_predict && !options.silu_change) pack.mode = options.mode;
  try {
    CheckPack(source, pack, options.output);
  } catch (const Error& error) {
    // Learning takes more, and what is named as enough must be enough for all.
    if (error.code() == ErrorCode::kOutOfBudget) CheckLearningMemory(LessonOptions(options));
    throw;
  }
}

PackReport WriteAndTry(const GgufFile& source, PackOptions pack, std::optional<TextLessons> lessons,
                       const PackCommandOptions& options) {
  PackReport report;
  report.path = options.output;
  report.mode_was_given = options.mode.has_value();
  PackTrialOptions trial;
  trial.allowed = AllowedModes(source, lessons);
  trial.mode = options.mode;
  if (lessons) trial.sample = lessons->sample;
  trial.memory_bytes = options.memory_bytes;
  trial.threads = options.threads;
  std::optional<ProgressLine> progress(std::in_place, "packing", ProgressUnit::kBytes);
  pack.mode = options.mode;
  pack.choose_mode = [&](const std::string& path) {
    progress.reset();
    report.trial = TryPackedFile(path, trial);
    return report.trial.mode;
  };
  report.result = PackModel(source, pack, options.output, [&](uint64_t done, uint64_t total) {
    StopWhereInterrupted(options.output);
    if (progress) progress->Update(done, total);
  });
  report.lessons = std::move(lessons);
  return report;
}

// What `plan` needs to know of the packed file, for every mode in which neurons can be left out.
// The file is written by now: what goes wrong costs a warning.
void KeepAccesses(const PackCommandOptions& options, const TextLessons& lessons) {
  if (lessons.beginning.size() < kLeastTokensToLearnFrom) return;
  ModelOptions model;
  model.model = options.output;
  model.memory_bytes = options.memory_bytes;
  model.threads = options.threads;
  model.advises = false;
  try {
    const GgufFile packed = GgufFile::Open(options.output);
    for (const FfnMode mode : UsableModes(PlanLoad(packed))) {
      if (mode == FfnMode::kDense) continue;  // every token needs the same
      LearnAccesses(model, ModelHash(packed), mode, lessons.beginning);
    }
  } catch (const Error& error) {
    const std::string why = error.code() == ErrorCode::kCancelled ? "interrupted" : Sentence(error);
    PrintSentence(fmt::format("warning: 'hearth plan' will need a --text for {}: {}",
                              Printable(options.output), why));
  }
}

int Pack(const PackCommandOptions& options) {
  CheckFiles(
      {{"MODEL", options.source}, {"--text", options.text_file}, {"--profile", options.profile}},
      {{"--output", options.output}});
  const GgufFile source = OpenModel(options.source, options.activation);
  WarnOfActivation(source);
  std::optional<ModelProfile> profile;
  if (!options.profile.empty()) profile = LoadProfile(options.profile);
  CatchInterrupts(true);  // an interrupted run must not leave gigabytes behind
  PackOptions pack{.profile = profile ? &*profile : nullptr,
                   .quant = options.quant,
                   .memory_bytes = options.memory_bytes};
  pack.threads = options.threads == 0 ? AvailableCpus() : options.threads;
  // A folder is packed to make a file of it at all.
  const FfnActivation activation = MainFfn(ReadModelSpec(source)).activation;
  if (options.text_file.empty() && !CanSkipNeurons(activation) && !options.is_forced &&
      !IsModelFolder(options.source)) {
    CheckPack(source, pack, options.output);  // what else is wrong is said first
    RefuseToPack(options.source, activation);
  }
  std::optional<TextLessons> lessons;
  if (!options.text_file.empty()) {
    CheckBeforeLearning(source, pack, options);
    lessons = Learn(options, profile);
    profile = lessons->profile;
    pack.profile = &*profile;
    if (lessons->silu) pack.silu_thresholds = lessons->silu->thresholds;
  }
  std::optional<PredictorSet> predictors;
  if (lessons && lessons->predictors) {
    predictors = std::move(lessons->predictors->set);
    pack.predictors = &*predictors;
  }
  const PackReport report = WriteAndTry(source, pack, std::move(lessons), options);
  if (pack.predictors != nullptr) {
    ForgetLessons(StateFolder(options), ReadModelSpec(source).num_layers);
  }
  if (report.lessons) KeepAccesses(options, *report.lessons);
  PrintAboutOrder(options, pack.profile);
  SayWhatIsLeftOut(options.source);
  WriteOutput(options.json ? DumpJson(PackJson(report)) : PackText(report));
  return kExitDone;
}

// The files that it reads and writes.
void AddPackFiles(CLI::App& command, PackCommandOptions& options) {
  command.add_option("MODEL", options.source, kModelHelp)->required()->check(NotEmpty());
  AddFileOption(command, "-o,--output", options.output, "packed file to write (GGUF)")->required();
  AddFileOption(command, "--profile", options.profile,
                "what 'hearth profile' wrote: the most active neurons come first");
  AddFileOption(
      command, "--text", options.text_file,
      "text to learn from: how often neurons are active, how to predict which will be, and what "
      "'hearth plan' needs to know");
}

}  // namespace

void AddPackCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<PackCommandOptions>();
  CLI::App* command =
      app.add_subcommand("pack", "Make a packed file, whose FFNs can be read neuron by neuron");
  AddPackFiles(*command, *options);
  command
      ->add_option_function<std::string>(
          "--quant", [options](const std::string& name) { options->quant = ParseBundleType(name); },
          "type of the FFNs: q4_0, q4_1, q8_0, f16 (default: that of the model's gates, q8_0 for "
          "floats)")
      ->option_text("TYPE");
  command
      ->add_option_function<std::string>(
          "--silu-threshold",
          [options](const std::string& text) { options->silu_change = ParseChange(text); },
          "of SiLU models: leave out neurons with the smallest |silu(gate)|, as many as move the "
          "perplexity of --text by at most this, like 0.5% (default: none)")
      ->option_text("COST");
  command
      ->add_option_function<std::string>(
          "--predictor",
          [options](const std::string& name) { options->predictors = ParseMethod(name); },
          "how predictors are made of --text: computed from the gates' own weights, trained from "
          "there (minutes for each layer of a large model), or auto: trained where the computed "
          "one lists too many neurons")
      ->option_text("auto|computed|trained");
  command
      ->add_option_function<std::string>(
          "--mode", [options](const std::string& name) { options->mode = ParseMode(name); },
          "what --mode auto will mean for the packed file (default auto: the fastest here, "
          "measured "
          "for some seconds; predicted only if the predictors find 99% of the activation and cost "
          "at most 0.1% of perplexity)")
      ->option_text("auto|dense|gated|predicted");
  AddActivationOption(*command, options->activation);
  AddMemoryOption(*command, options->memory_bytes);
  AddThreadsOption(*command, options->threads);
  command->add_flag("--force", options->is_forced,
                    "pack a model although it gets larger and slower");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &action] {
    action = [options] {
      CheckPackUsage(*options);
      options->source = FindModel(options->source);
      return Pack(*options);
    };
  });
}

}  // namespace hearth::cli
