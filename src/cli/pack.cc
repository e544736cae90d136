// hearth pack: a packed file from a plain model file.
#include "prepare/pack.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/pack_text.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "prepare/hugging_face.h"

namespace hearth::cli {
namespace {

struct PackCommandOptions {
  std::string source;
  std::string output;
  std::string profile;
  std::string text_file;
  std::optional<DType> quant;
  std::optional<uint64_t> memory_bytes;
  int threads = 0;
};

DType ParseBundleType(const std::string& name) {
  const std::optional<DType> type = DTypeFromName(name);
  if (type && CanBundle(*type)) return *type;
  throw UsageError("--quant: expected q4_0, q4_1, q8_0 or f16, found '" + Printable(name) + "'");
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

TextLessons Learn(const PackCommandOptions& options, const std::string& state_dir,
                  const std::optional<ModelProfile>& profile) {
  if (IsModelFolder(options.source)) {
    throw Error(ErrorCode::kUnsupported, options.source,
                "--text needs a GGUF file: a folder can only be packed without");
  }
  return LearnFromText({.model = options.source,
                        .text_file = options.text_file,
                        .state_dir = state_dir,
                        .profile = profile,
                        .memory_bytes = options.memory_bytes,
                        .threads = options.threads});
}

int Pack(const PackCommandOptions& options) {
  const GgufFile source = IsModelFolder(options.source) ? OpenModelFolder(options.source)
                                                        : GgufFile::Open(options.source);
  std::optional<ModelProfile> profile;
  if (!options.profile.empty()) profile = LoadProfile(options.profile);
  CatchInterrupts(true);  // an interrupted run must not leave gigabytes behind
  PackOptions pack{.profile = profile ? &*profile : nullptr,
                   .quant = options.quant,
                   .memory_bytes = options.memory_bytes};
  pack.threads = options.threads == 0 ? AvailableCpus() : options.threads;
  std::optional<TextLessons> lessons;
  const std::string state_dir = options.output + ".predictors";
  if (!options.text_file.empty()) {
    CheckPack(source, pack, options.output);
    lessons = Learn(options, state_dir, profile);
    pack.profile = &lessons->profile;
    if (lessons->predictors) pack.predictors = &lessons->predictors->set;
  }
  PackResult result;
  {
    ProgressLine progress("packing", ProgressUnit::kBytes);
    result = PackModel(source, pack, options.output, [&](uint64_t done, uint64_t total) {
      if (InterruptFlag()) {
        throw Error(ErrorCode::kCancelled, options.output, "interrupted, nothing was written");
      }
      progress.Update(done, total);
    });
  }
  if (lessons) {
    std::error_code ignored;  // what is left there helps nobody now, and hurts nobody
    std::filesystem::remove_all(state_dir, ignored);
  }
  PrintAboutOrder(options, pack.profile);
  std::string text = fmt::format("wrote {}: {} neurons in bundles of {} bytes ({}), {}\n",
                                 options.output, result.neurons, result.layout.stride,
                                 NameOf(result.quant), FormatSize(result.file_bytes));
  if (result.down_error > 0) {
    text += fmt::format(
        "down was quantized anew, along hidden: {:.2f}% root mean square error on its weights "
        "(hearth eval tells what that costs)\n",
        100 * result.down_error);
  }
  if (lessons) text += LessonsText(*lessons);
  WriteOutput(text);
  return kExitDone;
}

}  // namespace

void AddPackCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<PackCommandOptions>();
  CLI::App* command =
      app.add_subcommand("pack", "Make a packed file, whose FFNs can be read neuron by neuron");
  command
      ->add_option(
          "MODEL", options->source,
          "model file (GGUF; any file of a split set) or folder (config.json and safetensors)")
      ->required();
  command->add_option("-o,--output", options->output, "packed file to write (GGUF)")
      ->option_text("FILE")
      ->check(NotEmpty())
      ->required();
  command
      ->add_option("--profile", options->profile,
                   "what 'hearth profile' wrote: neurons that fire most come first")
      ->option_text("FILE")
      ->check(NotEmpty());
  command
      ->add_option("--text", options->text_file,
                   "text to learn from: how often neurons fire, and predictors of who will")
      ->option_text("FILE")
      ->check(NotEmpty());
  command
      ->add_option_function<std::string>(
          "--quant", [options](const std::string& name) { options->quant = ParseBundleType(name); },
          "type of the FFNs: q4_0, q4_1, q8_0, f16 (default: that of the model's gates, q8_0 for "
          "floats)")
      ->option_text("TYPE");
  AddMemoryOption(*command, options->memory_bytes);
  AddThreadsOption(*command, options->threads);
  command->callback([options, &action] { action = [options] { return Pack(*options); }; });
}

}  // namespace hearth::cli
