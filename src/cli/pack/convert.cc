// hearth convert: a plain GGUF file from a model folder.
#include "prepare/convert/convert.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/memory_info.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/options/command_files.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "engine/load/model.h"
#include "import/hugging_face.h"

namespace hearth::cli {
namespace {

struct ConvertCommandOptions {
  std::string folder;
  std::string output;
  std::optional<DType> type;
  std::vector<AdapterOption> adapters;
  bool is_forced = false;
  bool json = false;
};

std::optional<DType> ParseFloatType(const std::string& name) {
  if (name == "keep") return std::nullopt;
  const std::optional<DType> type = DTypeFromName(name);
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) return type;
  throw UsageError("--type: expected keep, f32, f16 or bf16, found '" + Printable(name) + "'");
}

void CheckConvert(const ConvertCommandOptions& options) {
  std::vector<NamedFile> inputs = {{"FOLDER", options.folder}};
  for (const AdapterOption& adapter : options.adapters) inputs.push_back({"--lora", adapter.path});
  CheckFiles(inputs, {{"--output", options.output}});
  if (!IsModelFolder(options.folder)) {
    throw Error(ErrorCode::kNotFound, options.folder,
                "there is no config.json: give a folder as published on Hugging Face, with "
                "config.json, tokenizer and safetensors");
  }
  std::error_code missing;
  if (!options.is_forced && std::filesystem::exists(options.output, missing)) {
    throw Error(ErrorCode::kInvalidArgument, options.output,
                "there is such a file already: --force replaces it");
  }
}

int Convert(const ConvertCommandOptions& options) {
  CheckConvert(options);
  const Stopwatch watch;
  const GgufFile source = OpenModelFolder(options.folder);
  const ModelSpec spec = PlanLoad(source).spec;  // refuses what would not run
  ConvertResult result;
  CatchInterrupts(true);
  {
    ProgressLine progress("converting", ProgressUnit::kBytes);
    result = ConvertModel(source, {.type = options.type, .adapters = options.adapters},
                          options.output, [&](uint64_t done, uint64_t total) {
                            StopWhereInterrupted(options.output);
                            progress.Update(done, total);
                          });
  }
  SayWhatIsLeftOut(options.folder);
  if (options.json) {
    WriteOutput(DumpJson({{"file", options.output},
                          {"bytes", result.file_bytes},
                          {"architecture", spec.architecture},
                          {"name", spec.name},
                          {"type", NameOf(result.type)},
                          {"tensors", result.num_tensors},
                          {"merged_tensors", result.num_merged},
                          {"merge_error", result.merge_error},
                          {"ms", 1000 * watch.Seconds()},
                          {"buffer_bytes", result.peak_bytes},
                          {"rss_peak_bytes", PeakResidentBytes()}}));
    return kExitDone;
  }
  WriteOutput(fmt::format("wrote {}: {} ({}), {} tensors, {}, {}\n", options.output, spec.name,
                          spec.architecture, result.num_tensors, NameOf(result.type),
                          FormatSize(result.file_bytes)));
  if (!options.adapters.empty()) {
    WriteOutput(
        fmt::format("--lora changed {} tensors; rounding them costs {:.2g} (relative error)\n",
                    result.num_merged, result.merge_error));
  }
  return kExitDone;
}

}  // namespace

void AddConvertCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<ConvertCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "convert", "Make a plain model file (GGUF) of a folder as published on Hugging Face");
  command
      ->add_option("FOLDER", options->folder, "folder with config.json, tokenizer and safetensors")
      ->required()
      ->check(NotEmpty());
  AddFileOption(*command, "-o,--output", options->output, "file to write (GGUF)")->required();
  command
      ->add_option_function<std::string>(
          "--type", [options](const std::string& name) { options->type = ParseFloatType(name); },
          "type of the matrices: keep (what the folder has), f32, f16 or bf16; vectors are f32 "
          "(keep)")
      ->option_text("TYPE");
  AddLoraOption(
      *command, options->adapters,
      "low-rank adapter that becomes part of the weights: a GGUF file, or a folder as PEFT "
      "writes it; WEIGHT: how much of it is added (1); may be repeated");
  command->add_flag("--force", options->is_forced, "replace what is at -o");
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &action] { action = [options] { return Convert(*options); }; });
}

}  // namespace hearth::cli
