// hearth synth: a model file of any shape with random weights.
#include "prepare/synth.h"

#include <fmt/format.h>

#include <memory>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "prepare/shapes.h"
#include "prepare/weight_generator.h"

namespace hearth::cli {
namespace {

struct SynthCommandOptions {
  std::string shape;
  std::string output;
  DType quant = DType::kQ4_0;
  uint64_t seed = 0;
  int threads = 0;
};

DType ParseQuant(const std::string& name) {
  const std::optional<DType> type = DTypeFromName(name);
  if (type && CanSynthesize(*type)) return *type;
  throw UsageError("--quant: expected f32, f16, bf16, q4_0, q4_1 or q8_0, found '" +
                   Printable(name) + "'");
}

int Synth(const SynthCommandOptions& options) {
  const ModelShape shape = ResolveShape(options.shape);
  SynthOptions synth{.quant = options.quant, .seed = options.seed};
  synth.threads = options.threads == 0 ? AvailableCpus() : options.threads;
  SynthResult result;
  CatchInterrupts(true);  // an interrupted run must not leave gigabytes behind
  {
    ProgressLine progress("writing", ProgressUnit::kBytes);
    result = SynthesizeModel(shape, synth, options.output, [&](uint64_t done, uint64_t total) {
      if (InterruptFlag()) {
        throw Error(ErrorCode::kCancelled, options.output, "interrupted, nothing was written");
      }
      progress.Update(done, total);
    });
  }
  WriteOutput(fmt::format("wrote {}: {}, {} million random weights in {}, {}\n", options.output,
                          shape.name, result.num_weights / 1000000, NameOf(options.quant),
                          FormatSize(result.file_bytes)));
  return kExitDone;
}

}  // namespace

void AddSynthCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<SynthCommandOptions>();
  CLI::App* command =
      app.add_subcommand("synth", "Make a model file of any shape with random weights");
  std::string names;
  for (const std::string& name : ShapeNames()) names += (names.empty() ? "" : ", ") + name;
  command->add_option("--shape", options->shape, "a JSON file, or one of " + names)
      ->option_text("NAME|FILE")
      ->check(NotEmpty())
      ->required();
  command->add_option("-o,--output", options->output, "file to write (GGUF)")
      ->option_text("FILE")
      ->check(NotEmpty())
      ->required();
  command
      ->add_option_function<std::string>(
          "--quant", [options](const std::string& name) { options->quant = ParseQuant(name); },
          "type of the matrices: f32, f16, bf16, q4_0, q4_1, q8_0 (q4_0)")
      ->option_text("TYPE");
  AddSeedOption(*command, options->seed, "same seed, same file (0)");
  command->add_option("--threads", options->threads, "threads (default: one per processor)")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  command->callback([options, &action] { action = [options] { return Synth(*options); }; });
}

}  // namespace hearth::cli
