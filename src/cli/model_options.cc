#include "cli/model_options.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory_info.h"
#include "cli/find_model.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "engine/obey_plan.h"
#include "ops/compute.h"

namespace hearth::cli {
namespace {

void CheckIsa(const std::string& name) {
  std::string known = "auto";
  if (name == known) return;
  for (const std::string& usable : UsableIsaNames()) {
    if (name == usable) return;
    known += ", " + usable;
  }
  throw UsageError("--isa: expected one that runs on this processor (" + known + "), found '" +
                   Printable(name) + "'");
}

// What a plan decides cannot be said beside it.
void CheckPlanUsage(const CLI::App& command, const ModelOptions& options) {
  if (options.plan.empty()) return;
  std::vector<std::string> decided = options.streaming.given;
  const auto add_given = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (command.count(name) > 0) decided.emplace_back(name);
    }
  };
  add_given({"--isa"});
  if (!options.makes_plan()) add_given({"--memory", "--threads", "--ctx", "--kv", "--mode"});
  if (decided.empty()) return;
  throw UsageError(fmt::format("{} has no effect with --plan {}, which decides it", decided.front(),
                               Printable(options.plan)));
}

}  // namespace

CLI::Option* AddActivationOption(CLI::App& command, std::optional<GivenActivation>& given) {
  return command
      .add_option_function<std::string>(
          "--activation",
          [&given](const std::string& text) {
            try {
              given = ParseActivation(text);
            } catch (const Error& error) {
              throw UsageError(std::string("--") + error.what());
            }
          },
          "of the FFNs, where the file does not say it (default silu); fatrelu's T is the gate's "
          "threshold (0.01)")
      ->option_text("silu|relu|fatrelu[:T]|drelu");
}

void WarnOfActivation(const GgufFile& file) {
  const auto hint = FindActivationHint(file);
  if (!hint) return;
  PrintSentence(
      fmt::format("warning: {}: --activation {} runs it as such; 'hearth profile' with "
                  "--text compares them",
                  ActivationWarning(file.path(), hint), ActivationText(hint->probable)));
}

void AddModelOptions(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.model, kModelHelp)->required()->check(NotEmpty());
  AddThreadsOption(command, options.threads);
  command
      .add_option("--ctx", options.context,
                  "context in tokens (default: the model's, at most 4096)")
      ->option_text("N")
      ->check(WholeIn(1, int64_t{1} << 31));
  command.add_option("--kv", options.kv, "type of the KV cache (default f16)")
      ->option_text("f16|f32")
      ->check(CLI::IsMember({"f16", "f32"}));
  AddMemoryOption(command, options.memory_bytes);
  AddActivationOption(command, options.activation);
  command
      .add_option_function<std::string>(
          "--isa",
          [&options](const std::string& name) {
            CheckIsa(name);
            options.isa = name;
          },
          "kernels to use, e.g. scalar, avx2 (default: the best here)")
      ->option_text("NAME");
}

std::optional<FfnMode> ParseMode(const std::string& name) {
  const std::optional<FfnMode> mode = FfnModeFromName(name);
  if (mode || name == "auto") return mode;
  throw UsageError("--mode: expected auto, dense, gated or predicted, found '" + Printable(name) +
                   "'");
}

void AddModeOption(CLI::App& command, ModelOptions& options) {
  command
      .add_option_function<std::string>(
          "--mode", [&options](const std::string& name) { options.mode = ParseMode(name); },
          "which neurons to compute: all, those whose gate fires, or those that predictors name "
          "(default auto: what the file was packed for, by measurement; where it does not say, the "
          "last of these that it can run in)")
      ->option_text("auto|dense|gated|predicted");
  AddStreamingOptions(command, options.streaming);
  command
      .add_option("--plan", options.plan,
                  "do what 'hearth plan' wrote: memory, processors, mode and what is read how; "
                  "'auto': what it would write now, within --memory, --threads, --ctx, --kv and "
                  "--mode")
      ->option_text("PLAN|auto")
      ->check(NotEmpty());
  command.parse_complete_callback([&command, &options] { CheckPlanUsage(command, options); });
}

namespace {

// What the options ask of the engine, by themselves.
EngineOptions OptionsOf(const ModelOptions& options) {
  EngineOptions engine;
  engine.memory_bytes = options.memory_bytes;
  engine.threads = options.threads;
  engine.isa = options.isa;
  engine.context = options.context;
  engine.mode = options.mode;
  engine.activation = options.activation;
  engine.streaming = options.streaming.options;
  engine.kv_dtype = options.kv == "f32" ? DType::kF32 : DType::kF16;
  return engine;
}

}  // namespace

std::unique_ptr<Engine> LoadEngine(const ModelOptions& options) {
  CheckStreaming(options.streaming);
  if (!options.plan.empty() && !options.planned) {
    throw Error(ErrorCode::kInternal, "LoadEngine", "a plan that was not settled");
  }
  EngineOptions engine =
      options.planned ? ObeyPlan(*options.planned, options.plan, options.model, options.activation)
                      : OptionsOf(options);
  engine.may_stream = engine.may_stream && options.may_stream;
  engine.silu_thresholds = options.silu_thresholds;
  engine.reserved_bytes = options.reserved_bytes;
  MakeRoomForRequests(engine, options.kv_sequences, options.more_program_bytes);
  ProgressLine progress("loading", ProgressUnit::kBytes);
  std::unique_ptr<Engine> loaded = Engine::Load(
      options.model, engine, [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
  CheckStreamingUsed(options.streaming, *loaded);
  if (options.doubts) WarnOfActivation(loaded->model().Reopen());
  if (options.advises) PrintNotice(PackingAdvice(*loaded));
  return loaded;
}

}  // namespace hearth::cli
