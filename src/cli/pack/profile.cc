// hearth profile: which neurons a text makes fire.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/command_files.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/pack/activation_check.h"
#include "cli/pack/activation_report.h"
#include "cli/pack/profile_imatrix.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "format/bundle_layout.h"
#include "format/packed_file.h"
#include "import/open_model.h"
#include "measure/topic_walk.h"
#include "model/registry.h"
#include "prepare/profile/profile_plot.h"
#include "prepare/profile/profiler.h"
#include "storage/atomic_file.h"
#include "tensor/kv_layout.h"

namespace hearth::cli {
namespace {

constexpr int64_t kMostProfileTokens = int64_t{1} << 40;
constexpr int64_t kMostWalk = int64_t{1} << 30;  // they are held in memory

struct ProfileCommand {
  ModelOptions model;
  std::string text_file;
  int64_t walk = 0;  // tokens of the model's topic walk, instead of a text
  std::string output;
  std::string trace;
  std::string plot;
  std::string imatrix;                  // written instead of a profile
  int64_t tokens = kMostProfileTokens;  // of the text, at most
  int64_t trace_tokens = kMostProfileTokens;
  double save_seconds = 60;
  bool restart = false;
  bool json = false;
};

// What is to be run.
struct ProfileJob {
  std::vector<TokenId> text;
  ModelProfile profile;  // planned, or continued
  int64_t num_experts_per_token = 0;
};

void CheckProfileUsage(const ProfileCommand& options, const CLI::App& command) {
  if (options.text_file.empty() == (options.walk == 0)) {
    throw UsageError(options.walk > 0 ? "profile takes --text or --walk, not both"
                                      : "profile needs one of --text and --walk");
  }
  const bool has_other =
      !options.output.empty() || !options.trace.empty() || !options.plot.empty() || options.restart;
  if (!options.imatrix.empty() && has_other) {
    throw UsageError(
        "--imatrix: without -o, --restart, --plot and --trace, which are of a profile");
  }
  if (options.walk > 0 && command.count("--tokens") > 0) {
    throw UsageError("--tokens: --walk says how many already");
  }
  if (options.trace.empty() && command.count("--trace-tokens") > 0) {
    throw UsageError("--trace-tokens: there is no --trace");
  }
  if (options.output.empty() && options.restart) {
    throw UsageError("--restart: there is no -o to start over");
  }
  if (options.output.empty() && command.count("--save-every") > 0) {
    throw UsageError("--save-every: there is no -o to save to");
  }
}

std::vector<TokenId> EncodedText(const ProfileCommand& options, const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens = tokenizer.Encode(ReadTextFile(options.text_file));
  if (tokens.empty()) {
    throw Error(ErrorCode::kInvalidArgument, options.text_file,
                "the text is empty: there is nothing to profile");
  }
  if (static_cast<int64_t>(tokens.size()) > options.tokens) {
    tokens.resize(static_cast<size_t>(options.tokens));
  }
  return tokens;
}

// What a synthesized model is meant to be fed.
std::vector<TokenId> WalkedTokens(const ProfileCommand& options, const GgufMetadata& metadata,
                                  int64_t vocab_size) {
  const auto map = TopicMap::FromMetadata(metadata, vocab_size);
  if (!map) {
    throw Error(ErrorCode::kInvalidArgument, options.model.model,
                "it has no topics to walk: only models that synth planted sparsity in do");
  }
  return TopicWalk(*map, kLearningWalk).Take(options.walk);
}

std::vector<TokenId> TokensToRun(const ProfileCommand& options, const GgufFile& file,
                                 const ModelSpec& spec, const Tokenizer& tokenizer) {
  return options.walk > 0 ? WalkedTokens(options, file.metadata(), spec.vocab_size)
                          : EncodedText(options, tokenizer);
}

int ProfileImatrix(const ProfileCommand& options) {
  const GgufFile file = OpenModel(options.model.model, options.model.activation);
  const ModelSpec spec = ReadModelSpec(file);
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file.metadata());
  const std::vector<TokenId> text = TokensToRun(options, file, spec, *tokenizer);
  return MakeImatrix(
      options.model, spec, text,
      {.output = options.imatrix,
       .text_name =
           options.walk > 0 ? "topic walk" : std::filesystem::path(options.text_file).filename(),
       .json = options.json});
}

ProfileJob PlanJob(const ProfileCommand& options) {
  const GgufFile file = OpenModel(options.model.model, options.model.activation);
  const ModelSpec spec = ReadModelSpec(file);
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file.metadata());
  ProfileJob job;
  job.text = TokensToRun(options, file, spec, *tokenizer);
  const int64_t context = options.model.context > 0
                              ? options.model.context
                              : std::min(spec.context_length, kDefaultContext);
  job.profile = PlanProfile(spec, ModelHash(file), job.text,
                            {.bos = tokenizer->special().bos,
                             .context = context,
                             .kv_codec = KvCodecFromName(options.model.kv).value()});
  job.num_experts_per_token = MainFfn(spec).num_experts_per_token;
  return job;
}

// Takes up the profile at -o where there is one.
void ContinueFrom(const ProfileCommand& options, ProfileJob& job) {
  if (options.output.empty() || options.restart || !std::filesystem::exists(options.output)) return;
  ModelProfile saved = LoadProfile(options.output);
  const std::string difference = DifferenceOfRuns(saved, job.profile);
  if (!difference.empty()) {
    throw Error(ErrorCode::kInvalidArgument, options.output,
                "it holds the profile of " + difference + "; --restart replaces it");
  }
  if (!options.trace.empty()) {
    throw Error(ErrorCode::kInvalidArgument, options.output,
                "a trace needs all tokens to be run: add --restart, or leave -o out");
  }
  PrintNotice(saved.complete()
                  ? fmt::format("{}: complete, nothing is run again\n", options.output)
                  : fmt::format("{}: continuing after {} of {} tokens\n", options.output,
                                saved.text_tokens, saved.total_tokens));
  job.profile = std::move(saved);
}

void Run(const ProfileCommand& options, ProfileJob& job, TraceWriter* trace) {
  ModelOptions dense = options.model;
  dense.mode = FfnMode::kDense;  // all neurons are looked at
  dense.advises = false;         // reading on from layer to layer is what it does
  dense.reserved_bytes = ProfileRunBytes(OpenModel(options.model.model), job.profile, trace);
  const auto engine = LoadEngine(dense);
  CatchInterrupts(true);
  if (!options.text_file.empty()) CheckActivation(*engine, job.text);
  ProfileRunOptions run;
  run.cancel = &InterruptFlag();
  run.save_seconds = options.save_seconds;
  run.trace = trace;
  run.trace_tokens = static_cast<uint64_t>(options.trace_tokens);
  if (!options.output.empty()) {
    run.save = [&](const ModelProfile& profile) { SaveProfile(profile, options.output); };
  }
  ProgressLine progress("profiling", ProgressUnit::kTokens, job.profile.text_tokens);
  run.progress = [&](uint64_t done, uint64_t total) {
    progress.Update(done, total,
                    InterruptFlag()    ? "stopping"
                    : trace != nullptr ? "trace " + FormatSize(trace->written_bytes())
                                       : "");
  };
  RunProfile(*engine, job.text, job.profile, run);
  if (trace != nullptr) trace->Finish();
}

// One sentence on what an interrupted run leaves.
[[noreturn]] void ThrowInterrupted(const ProfileCommand& options, const ModelProfile& profile) {
  std::string what =
      fmt::format("interrupted after {} of {} tokens", profile.text_tokens, profile.total_tokens);
  if (!options.trace.empty()) {
    what += options.output.empty() ? "; the trace ends there" : "; trace and profile end there";
  } else {
    what +=
        options.output.empty() ? "; without -o nothing is kept" : "; the same command continues";
  }
  throw Error(ErrorCode::kCancelled, options.output.empty() ? "profile" : options.output, what);
}

void Report(const ProfileCommand& options, const ModelProfile& profile, const TraceWriter* trace) {
  if (options.json) {
    const auto name = [](const std::string& path) {
      return path.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(path);
    };
    nlohmann::ordered_json document = ActivationJson(profile);
    document["files"] = {{"profile", name(options.output)},
                         {"plot", name(options.plot)},
                         {"trace", name(options.trace)},
                         {"trace_tokens", nullptr},
                         {"trace_bytes", nullptr}};
    if (trace != nullptr) {
      document["files"]["trace_tokens"] = trace->tokens();
      document["files"]["trace_bytes"] = trace->written_bytes();
    }
    WriteOutput(DumpJson(document));
    return;
  }
  std::string files;
  if (!options.output.empty()) files += fmt::format("\nprofile  {}", options.output);
  if (!options.plot.empty()) files += fmt::format("\nplot     {}", options.plot);
  if (trace != nullptr) {
    files += fmt::format("\ntrace    {}, {} tokens in {}", options.trace, trace->tokens(),
                         FormatSize(trace->written_bytes()));
  }
  WriteOutput(ActivationText(profile) + (files.empty() ? "" : files + "\n"));
}

int Profile(const ProfileCommand& options) {
  CheckFiles({{"MODEL", options.model.model}, {"--text", options.text_file}},
             {{"--output", options.output},
              {"--plot", options.plot},
              {"--trace", options.trace},
              {"--imatrix", options.imatrix}});
  if (!options.imatrix.empty()) return ProfileImatrix(options);
  ProfileJob job = PlanJob(options);
  ContinueFrom(options, job);
  for (const std::string& path : {options.output, options.plot}) {
    if (!path.empty()) CheckWritable(path);
  }
  std::optional<TraceWriter> trace;
  if (!options.trace.empty()) {
    trace.emplace(options.trace, TraceHeaderOf(job.profile, job.num_experts_per_token));
  }
  if (!job.profile.complete()) {
    Run(options, job, trace ? &*trace : nullptr);
    if (!job.profile.complete()) ThrowInterrupted(options, job.profile);
  }
  if (!options.plot.empty()) WriteFileAtomically(options.plot, PlotProfile(job.profile));
  Report(options, job.profile, trace ? &*trace : nullptr);
  return kExitDone;
}
}  // namespace

void AddProfileCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<ProfileCommand>();
  CLI::App* command =
      app.add_subcommand("profile", "Record which neurons a text makes fire, and how often");
  AddModelOptions(*command, options->model);
  AddFileOption(*command, "--text", options->text_file, "file that holds the text");
  command
      ->add_option("--walk", options->walk,
                   "instead: tokens of the topic walk of a synthesized model")
      ->option_text("N")
      ->check(WholeIn(1, kMostWalk));
  AddFileOption(*command, "-o,--output", options->output,
                "profile to write, for pack; an existing one is continued");
  command->add_flag("--restart", options->restart, "replace what is at -o instead");
  command->add_option("--save-every", options->save_seconds, "seconds between saves (60)")
      ->option_text("S")
      ->check(NumberIn(0.0, 1e9));
  command->add_option("--tokens", options->tokens, "tokens of the text to run (all)")
      ->option_text("N")
      ->check(WholeIn(1, kMostProfileTokens));
  AddFileOption(*command, "--plot", options->plot, "picture to write (SVG)");
  AddFileOption(*command, "--trace", options->trace,
                "access trace to write: the active neurons of every token");
  command->add_option("--trace-tokens", options->trace_tokens, "tokens to trace (all)")
      ->option_text("N")
      ->check(WholeIn(1, kMostProfileTokens));
  AddFileOption(*command, "--imatrix", options->imatrix,
                "instead of a profile: importance matrix to write (GGUF), for 'hearth quantize'");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, command, &action] {
    CheckProfileUsage(*options, *command);
    action = [options] {
      options->model.model = FindModel(options->model.model);
      return Profile(*options);
    };
  });
}

}  // namespace hearth::cli
