// hearth synth: a model file of any shape, with random weights or planted sparsity.
#include "prepare/synth/synth.h"

#include <fmt/format.h>

#include <memory>

#include "base/cpu.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/options/command_files.h"
#include "cli/options/option_values.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "prepare/shapes/shapes.h"
#include "prepare/synth/weight_generator.h"
#include "sparsity/access_sequence.h"

namespace hearth::cli {
namespace {

struct SynthCommandOptions {
  std::string shape;
  std::string output;
  DType quant = DType::kQ4_0;
  uint64_t seed = 0;
  int threads = 0;
  bool packed = false;
  std::optional<PlantedOptions> planted;  // where one of its flags was given
  std::string like;
};

DType ParseQuant(const std::string& name) {
  const std::optional<DType> type = DTypeFromName(name);
  if (type && CanSynthesize(*type)) return *type;
  throw UsageError("--quant: expected f32, f16, bf16, q4_0, q4_1 or q8_0, found '" +
                   Printable(name) + "'");
}

PlantedOptions& Planted(std::optional<PlantedOptions>& planted) {
  return planted ? *planted : planted.emplace();
}

// For shapes whose activation leaves zeros.
void AddPlantedOptions(CLI::App& command, std::optional<PlantedOptions>& planted) {
  command
      .add_option_function<double>(
          "--active", [&planted](double share) { Planted(planted).active = share; },
          "ReLU shapes: share of the neurons that a token activates (0.1)")
      ->option_text("SHARE");
  command
      .add_option_function<double>(
          "--gate", [&planted](double share) { Planted(planted).gate = share; },
          "drelu shapes: share of the gates that fire (twice --active)")
      ->option_text("SHARE");
  command
      .add_option_function<double>(
          "--skew", [&planted](double share) { Planted(planted).skew = share; },
          "ReLU shapes: share of the neurons that 80% of activations belong to (0.28)")
      ->option_text("SHARE");
  command
      .add_option_function<std::string>(
          "--locality",
          [&planted](const std::string& name) {
            const std::optional<Locality> locality = LocalityFromName(name);
            if (!locality) {
              throw UsageError("--locality: expected high, medium, low or measured, found '" +
                               Printable(name) + "'");
            }
            Planted(planted).locality = *locality;
          },
          "ReLU shapes and experts: how slowly the active set moves: high, medium, low (medium); "
          "measured: ReLU shapes only, locality and skew of the embedded model")
      ->option_text("HOW");
  command
      .add_option_function<int64_t>(
          "--rank", [&planted](int64_t rank) { Planted(planted).rank = rank; },
          "ReLU shapes: directions per layer that neurons look at (256)")
      ->check(WholeIn(1, int64_t{1} << 20))
      ->option_text("K");
}

RecordedFigures ReadLike(const std::string& path) {
  ProgressLine progress("reading", ProgressUnit::kShare);
  return RecordedFrom(ReadAccessSequence(
      OpenFileReader(path), [&](uint64_t done, uint64_t total) { progress.Update(done, total); }));
}

// What was wanted and what comes of it; empty where nothing was measured.
std::string FiguresText(const PlantedOptions& planted, const PlantedShares& shares) {
  if (!shares.reached) return "";
  const AccessUnit unit = planted.like ? planted.like->unit : AccessUnit::kNeurons;
  AccessFigures wanted = planted.like ? planted.like->figures : kMeasuredFigures;
  if (!planted.like) wanted.hot_share = planted.skew.value_or(wanted.hot_share);
  return fmt::format(
      "planted: 80% of activations in {:.1f}% of the {} (asked {:.1f}%); a cache of {:.0f}% of "
      "them finds {:.1f}% (asked {:.1f}%)\n",
      100 * shares.reached->hot_share, unit == AccessUnit::kNeurons ? "neurons" : "experts",
      100 * wanted.hot_share, 100 * FiguresCacheShare(unit), 100 * shares.reached->found,
      100 * wanted.found);
}

int Synth(const SynthCommandOptions& options) {
  CheckFiles({{"--shape", PathUnlessName(options.shape)}, {"--like", options.like}},
             {{"--output", options.output}});
  const ModelShape shape = ResolveShape(options.shape);
  SynthOptions synth{.quant = options.quant, .seed = options.seed};
  synth.planted = options.planted;
  if (!options.like.empty()) Planted(synth.planted).like = ReadLike(options.like);
  std::string figures;
  if (synth.planted) {
    const auto shares = AsUsage([&] { return DecideShares(shape, *synth.planted); });
    figures = FiguresText(*synth.planted, shares);
  }
  synth.packed = options.packed;
  synth.threads = options.threads == 0 ? AvailableCpus() : options.threads;
  SynthResult result;
  CatchInterrupts(true);  // an interrupted run must not leave gigabytes behind
  {
    ProgressLine progress("writing", ProgressUnit::kBytes);
    result = SynthesizeModel(shape, synth, options.output, [&](uint64_t done, uint64_t total) {
      StopWhereInterrupted(options.output);
      progress.Update(done, total);
    });
  }
  WriteOutput(fmt::format("wrote {}: {}, {}{} in {}, {}\n", options.output, shape.name,
                          CanPlant(shape) ? "planted sparsity" : "random weights",
                          options.packed ? ", packed" : "", NameOf(options.quant),
                          FormatSize(result.file_bytes)) +
              figures);
  return kExitDone;
}

}  // namespace

void AddSynthCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<SynthCommandOptions>();
  CLI::App* command =
      app.add_subcommand("synth", "Make a model file of any shape, without real weights");
  std::string names;
  for (const std::string& name : ShapeNames()) names += (names.empty() ? "" : ", ") + name;
  command->add_option("--shape", options->shape, "a JSON file, or one of " + names)
      ->option_text("NAME|FILE")
      ->check(NotEmpty())
      ->required();
  AddFileOption(*command, "-o,--output", options->output, "file to write (GGUF)")->required();
  command
      ->add_option_function<std::string>(
          "--quant", [options](const std::string& name) { options->quant = ParseQuant(name); },
          "type of the matrices: f32, f16, bf16, q4_0, q4_1, q8_0 (q4_0)")
      ->option_text("TYPE");
  AddPlantedOptions(*command, options->planted);
  AddFileOption(*command, "--like", options->like,
                "plant what this trace shows, instead of --active, --skew and --locality: of "
                "'profile --trace', or a .route.csv of experts");
  command->add_flag("--packed", options->packed,
                    "write a packed file, with planted predictors where sparsity is planted");
  AddSeedOption(*command, options->seed, "same seed, same file (0)");
  AddThreadsOption(*command, options->threads);
  command->callback([options, &action] { action = [options] { return Synth(*options); }; });
}

}  // namespace hearth::cli
