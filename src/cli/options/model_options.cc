#include "cli/options/model_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/memory_info.h"
#include "base/memory_lock.h"
#include "base/units.h"
#include "cli/help_format.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "engine/load/obey_plan.h"
#include "format/packed_file.h"
#include "import/hugging_face.h"
#include "import/open_model.h"
#include "ops/compute.h"
#include "tensor/kv_layout.h"

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
  std::vector<std::string> decided = GivenFlags(options.streaming);
  const auto add_given = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (command.count(name) > 0) decided.emplace_back(name);
    }
  };
  add_given({"--isa", "--device-memory", "--device-neurons"});
  if (options.makes_plan()) add_given({"--device"});
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
              throw UsageError(Sentence(error));
            }
          },
          "of the FFNs, where the file does not say it (default silu); fatrelu's T is the gate's "
          "threshold (0.01)")
      ->option_text("silu|gelu|gelu_erf|relu|fatrelu[:T]|drelu");
}

CLI::Option* AddChatFormatOption(CLI::App& command, std::optional<ChatFormat>& format) {
  return command
      .add_option_function<std::string>(
          "--chat-format",
          [&format](const std::string& name) {
            format = AsUsage([&] { return ParseChatFormat(name); });
          },
          "chatml, llama-2, llama-3, mistral, zephyr or harmony (default: the model's own "
          "template)")
      ->option_text("NAME");
}

void SayWhatIsLeftOut(const std::string& model) {
  if (!IsModelFolder(model)) return;
  for (const std::string& what : WhatIsLeftOut(model)) PrintNotice(what + "\n");
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
                  "tokens that a conversation may have (the model's, at most 4096)")
      ->option_text("N")
      ->group(kMemoryGroup)
      ->check(WholeIn(1, int64_t{1} << 31));
  AddKvOption(command, options.kv)->group(kMemoryGroup);
  AddKvMemoryOptions(command, options.kv_memory_bytes, options.kv_folder);
  AddMemoryOption(command, options.memory_bytes);
  command
      .add_flag("--lock", options.locks,
                "keep what is in memory from being swapped out, where the system allows it")
      ->group(kMemoryGroup);
  AddActivationOption(command, options.activation);
  command
      .add_option("--activations", options.activations,
                  "what quantized matrices are multiplied with: 8-bit codes, or floats of 11 bits, "
                  "which prompts take far longer with (i8)")
      ->option_text(kTileActivationsText)
      ->group(kMemoryGroup)
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTileActivationsNames),
                                                     std::end(kTileActivationsNames))));
  command
      .add_option_function<std::string>(
          "--isa",
          [&options](const std::string& name) {
            CheckIsa(name);
            options.isa = name;
          },
          "kernels to use, e.g. scalar, avx2 (the best here)")
      ->option_text("NAME")
      ->group(kExperimentGroup);
}

std::optional<FfnMode> ParseMode(const std::string& name) {
  const std::optional<FfnMode> mode = FfnModeFromName(name);
  if (mode || name == "auto") return mode;
  throw UsageError("--mode: expected auto, dense, gated or predicted, found '" + Printable(name) +
                   "'");
}

AdapterOption ParseAdapter(const std::string& text) {
  AdapterOption adapter;
  adapter.path = text;
  std::error_code failed;
  const size_t equals = text.rfind('=');
  if (equals != text.npos && !std::filesystem::exists(text, failed)) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, adapter.weight);
    if (error != std::errc() || stop != end ||
        !(std::abs(adapter.weight) <= AdapterSet::kMostWeight)) {
      throw UsageError(
          fmt::format("--lora: expected FILE or FILE=WEIGHT, a weight from -{0} to {0}, "
                      "found '{1}'",
                      AdapterSet::kMostWeight, Printable(text)));
    }
    adapter.path.resize(equals);
  }
  if (adapter.path.empty()) throw UsageError("--lora: expected a file's name, found none");
  return adapter;
}

CLI::Option* AddLoraOption(CLI::App& command, std::vector<AdapterOption>& adapters,
                           const std::string& help) {
  return command
      .add_option_function<std::vector<std::string>>(
          "--lora",
          [&adapters](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) adapters.push_back(ParseAdapter(text));
          },
          help)
      ->option_text("FILE[=WEIGHT]")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
}

void AddModeOption(CLI::App& command, ModelOptions& options) {
  command
      .add_option_function<std::string>(
          "--mode", [&options](const std::string& name) { options.mode = ParseMode(name); },
          "dense: all neurons; gated: only active ones, same result; predicted: those that a "
          "predictor expects, fastest (auto: what 'hearth pack' measured as fastest)")
      ->option_text("auto|dense|gated|predicted")
      ->group(kMemoryGroup);
  AddLoraOption(command, options.adapters,
                "low-rank adapter: a GGUF file, or a folder as PEFT writes it; WEIGHT: how much of "
                "it is added (1); may be repeated");
  AddStreamingOptions(command, options.streaming);
  AddDeviceOptions(command, options.device);
  command
      .add_option("--plan", options.plan,
                  "use settings that 'hearth plan' saved; auto: plan now, within --memory, "
                  "--threads, --ctx, --kv and --mode")
      ->option_text("PLAN|auto")
      ->group(kMemoryGroup)
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
  engine.kv_codec = KvCodecFromName(options.kv).value();
  engine.may_shorten_passes = true;
  return engine;
}

void WarnOfMemory(std::optional<uint64_t> memory_bytes) {
  const uint64_t most = MemoryLimitBytes();
  if (!memory_bytes || *memory_bytes <= most) return;
  PrintSentence(fmt::format(
      "warning: --memory {} is more than the {} that this machine or its container has: where that "
      "much is taken the system kills the program without a word",
      FormatSize(*memory_bytes), FormatSize(most)));
}

}  // namespace

void LockIfAsked(const ModelOptions& options) {
  if (!options.locks) return;
  const std::string refusal = LockMemory();
  if (refusal.empty()) return;
  PrintSentence("warning: memory is not locked and may be swapped out: " + refusal);
}

void SayDoubts(const Engine& engine) {
  WarnOfActivation(engine.model().Reopen());
  for (const std::string& warning : engine.model().tokenizer().warnings()) {
    PrintSentence("warning: " + warning);
  }
}

void CheckModelOptions(const ModelOptions& options) {
  WarnOfMemory(options.memory_bytes);
  CheckStreaming(options.streaming);
  CheckDeviceUsage(options.device);
}

EngineOptions EngineOptionsOf(const ModelOptions& options) {
  if (!options.plan.empty() && !options.planned) {
    throw Error(ErrorCode::kInternal, "LoadEngine", "a plan that was not settled");
  }
  EngineOptions engine =
      options.planned ? ObeyPlan(*options.planned, options.plan, options.model, options.activation)
                      : OptionsOf(options);
  engine.kv_memory_bytes = options.kv_memory_bytes;
  engine.kv_folder = options.kv_folder;
  engine.activations = TileActivationsFromName(options.activations).value();
  engine.may_stream = engine.may_stream && options.may_stream;
  engine.silu_thresholds = options.silu_thresholds;
  engine.reserved_bytes = options.reserved_bytes;
  engine.adapters = options.adapters;
  const bool is_packed = options.device.request.is_wanted() &&
                         IsPacked(OpenModel(options.model, options.activation).metadata());
  engine.device = DeviceRequestOf(options.device, options.planned, is_packed);
  MakeRoomForRequests(engine, options.kv_sequences, options.more_program_bytes);
  return engine;
}

std::unique_ptr<Engine> LoadEngine(const ModelOptions& options) {
  CheckModelOptions(options);
  const EngineOptions engine = EngineOptionsOf(options);
  ProgressLine progress("loading", ProgressUnit::kBytes);
  std::unique_ptr<Engine> loaded = Engine::Load(
      options.model, engine, [&](uint64_t done, uint64_t total) { progress.Update(done, total); });
  CheckStreamingUsed(options.streaming, *loaded);
  SayWhyNoDevice(*loaded);
  LockIfAsked(options);
  if (options.doubts) SayDoubts(*loaded);
  if (options.advises) {
    SayWhatIsLeftOut(options.model);
    PrintNotice(PackingAdvice(*loaded));
  }
  return loaded;
}

}  // namespace hearth::cli
