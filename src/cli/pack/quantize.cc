// hearth quantize: a plain GGUF file with fewer bits.
#include "prepare/quantize/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "base/worker_team.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/command_files.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/pack/quantize_report.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "engine/load/model.h"
#include "import/open_model.h"
#include "measure/agreement.h"

namespace hearth::cli {
namespace {

struct QuantizeCommand {
  ModelOptions model;
  std::string output;
  QuantizeRules rules;
  std::string imatrix;
  std::string text_file;
  bool requantize = false;
  bool is_forced = false;
  bool json = false;
};

void CheckQuantize(const QuantizeCommand& options) {
  CheckFiles({{"MODEL", options.model.model},
              {"--imatrix", options.imatrix},
              {"--text", options.text_file}},
             {{"--output", options.output}});
  std::error_code missing;
  if (!options.is_forced && std::filesystem::exists(options.output, missing)) {
    throw Error(ErrorCode::kInvalidArgument, options.output,
                "there is such a file already: --force replaces it");
  }
}

std::optional<ImportanceMatrix> LoadImportance(const QuantizeCommand& options,
                                               const GgufFile& source) {
  if (options.imatrix.empty()) return std::nullopt;
  ImportanceMatrix importance = ImportanceMatrix::Load(options.imatrix);
  const std::vector<std::string> strangers = importance.Strangers(source);
  if (!strangers.empty()) {
    PrintNotice(fmt::format("{}: {} of its {} names are no tensors of this model, '{}' for one\n",
                            options.imatrix, strangers.size(), importance.entries().size(),
                            Printable(strangers.front())));
  }
  return importance;
}

// One model at a time is in memory.
Foresight Foresee(const QuantizeCommand& options, const std::string& model, const std::string& text,
                  const char* label) {
  ModelOptions dense = options.model;
  dense.model = model;
  dense.mode = FfnMode::kDense;
  dense.advises = false;
  dense.doubts = false;
  const auto engine = LoadEngine(dense);
  const std::vector<TokenId> tokens = SampleToScore(engine->model().tokenizer().Encode(text));
  ProgressLine progress(label, ProgressUnit::kTokens);
  return ForeseeText(*engine, tokens, [&](uint64_t done, uint64_t all) {
    StopWhereInterrupted(options.output);
    progress.Update(done, all);
  });
}

QuantizeResult Write(const QuantizeCommand& options, const GgufFile& source,
                     const std::optional<ImportanceMatrix>& importance, Budget& budget) {
  BudgetCharge charge;
  if (importance) charge = budget.Charge("importance matrix", importance->values_bytes());
  WorkerTeam team(options.model.threads > 0 ? options.model.threads : AvailableCpus());
  ProgressLine progress("quantizing", ProgressUnit::kBytes);
  QuantizeOptions quantize;
  quantize.rules = options.rules;
  quantize.importance = importance ? &*importance : nullptr;
  quantize.requantize = options.requantize;
  return QuantizeModel(source, quantize, options.output, team, budget,
                       [&](uint64_t done, uint64_t total) {
                         StopWhereInterrupted(options.output);
                         progress.Update(done, total);
                       });
}

void Report(const QuantizeCommand& options, const ModelSpec& spec, const QuantizeResult& result,
            const std::optional<ForesightPair>& text, nlohmann::ordered_json more) {
  const bool has_importance = !options.imatrix.empty();
  PrintNotice(QuantizeNotices(result, has_importance));
  if (options.json) {
    nlohmann::ordered_json json = {{"file", options.output},
                                   {"bytes", result.file_bytes},
                                   {"architecture", spec.architecture},
                                   {"name", spec.name},
                                   {"recipe", options.rules.recipe.name}};
    json.update(QuantizeJson(result, has_importance, text));
    json.update(more);
    WriteOutput(DumpJson(json));
    return;
  }
  WriteOutput(fmt::format("wrote {}: {} ({}), {}, {}\n{}", options.output, spec.name,
                          spec.architecture, options.rules.recipe.name,
                          FormatSize(result.file_bytes), QuantizeText(result, text)));
}

int RunQuantize(const QuantizeCommand& options) {
  CheckQuantize(options);
  const Stopwatch watch;
  const std::string text =
      options.text_file.empty() ? std::string() : ReadTextFile(options.text_file);
  const GgufFile source = OpenModel(options.model.model, options.model.activation);
  const ModelSpec spec = PlanLoad(source).spec;  // refuses what would not run
  PlanTypes(source, options.rules);              // refuses rules that make no sense of it
  const std::optional<ImportanceMatrix> importance = LoadImportance(options, source);
  CatchInterrupts(true);
  std::optional<ForesightPair> foresight;
  if (!options.text_file.empty()) {
    foresight.emplace();
    foresight->before = Foresee(options, options.model.model, text, "scoring before");
  }
  Budget budget(options.model.memory_bytes.value_or(Budget::kUnlimited));
  const QuantizeResult result = Write(options, source, importance, budget);
  if (foresight) foresight->after = Foresee(options, options.output, text, "scoring after");
  SayWhatIsLeftOut(options.model.model);
  Report(options, spec, result, foresight,
         {{"ms", 1000 * watch.Seconds()},
          {"buffer_bytes", budget.peak_bytes()},
          {"rss_peak_bytes", PeakResidentBytes()}});
  return kExitDone;
}

// "q4_k_m: Q4_K, ...".
std::string RecipesText() {
  std::string text =
      "Recipes (types of matrices; norms, biases and routers stay F32; where a model has no output "
      "matrix, the embedding is it):";
  for (const std::string& name : RecipeNames()) {
    text += fmt::format("\n  {:<9} {}", name, DescribeRecipe(FindRecipe(name)));
  }
  return text + "\nThe outer layers are the first and the last quarter.";
}

void AddRecipeOptions(CLI::App& command, const std::shared_ptr<QuantizeCommand>& options) {
  command
      .add_option_function<std::string>(
          "--recipe",
          [options](const std::string& name) {
            options->rules.recipe = AsUsage([&] { return FindRecipe(name); });
          },
          "which types matrices get, see below (q4_k_m)")
      ->option_text("NAME");
  const auto add_type = [&](const char* name, std::optional<DType>& type, const char* what) {
    command
        .add_option_function<std::string>(
            name,
            [&type](const std::string& value) {
              type = AsUsage([&] { return ParseQuantType(value); });
            },
            what)
        ->option_text("TYPE");
  };
  add_type("--embedding", options->rules.embedding, "type of the token embedding (the recipe's)");
  add_type("--output-tensor", options->rules.output, "type of the output matrix (the recipe's)");
  command
      .add_option_function<std::vector<std::string>>(
          "--tensor",
          [options](const std::vector<std::string>& rules) {
            for (const std::string& rule : rules) {
              options->rules.tensors.push_back(AsUsage([&] { return ParseTensorRule(rule); }));
            }
          },
          "type of matrices whose names contain PATTERN, in which * stands for anything; may be "
          "repeated, the last that matches counts")
      ->option_text("PATTERN=TYPE")
      ->expected(1)
      ->take_all();
}

}  // namespace

void AddQuantizeCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<QuantizeCommand>();
  options->rules.recipe = FindRecipe("q4_k_m");
  CLI::App* command =
      app.add_subcommand("quantize", "Make a model file (GGUF) with fewer bits for each weight");
  AddModelOptions(*command, options->model);
  AddFileOption(*command, "-o,--output", options->output, "file to write (GGUF)")->required();
  AddRecipeOptions(*command, options);
  AddFileOption(*command, "--imatrix", options->imatrix,
                "importance matrix (GGUF or .dat), of 'hearth profile --imatrix' for one: weights "
                "that a text uses more are kept better");
  command->add_flag("--requantize", options->requantize,
                    "take matrices that are quantized already too");
  AddFileOption(*command, "--text", options->text_file,
                "file with a text that is scored before and after, on at most 4096 tokens");
  command->add_flag("--force", options->is_forced, "replace what is at -o");
  command->add_flag("--json", options->json, "print one JSON document");
  command->footer(RecipesText());
  command->callback([options, &action] {
    action = [options] {
      options->model.model = FindModel(options->model.model);
      return RunQuantize(*options);
    };
  });
}

}  // namespace hearth::cli
