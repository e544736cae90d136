// hearth eval: perplexity of a text.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/plan/settle_plan.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "engine/evaluate.h"

namespace hearth::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::string text_file;
  bool json = false;
};

int Evaluate(EvalOptions& options) {
  const std::string text = ReadTextFile(options.text_file);
  options.model.model = FindModel(options.model.model);
  SettlePlan(options.model);
  const auto engine = LoadEngine(options.model);
  const std::vector<TokenId> tokens = engine->model().tokenizer().Encode(text);
  EvalResult result;
  {
    ProgressLine progress("scoring", ProgressUnit::kTokens);
    result = EvaluateText(*engine, tokens, [&](uint64_t done, uint64_t total, double nll) {
      progress.Update(done, total, fmt::format("{:.4f} nats/token", nll));
    });
  }
  if (options.json) {
    WriteOutput(DumpJson({{"tokens", result.tokens},
                          {"nll_per_token", result.nll_per_token},
                          {"perplexity", result.perplexity},
                          {"mode", FfnModeName(engine->mode())},
                          {"quality", QualityJson(result.quality)}}));
    return kExitDone;
  }
  const std::string quality = QualityText(result.quality);
  WriteOutput(fmt::format("perplexity {:.4f} ({:.5f} nats/token over {} tokens, {}{}{})\n",
                          result.perplexity, result.nll_per_token, result.tokens,
                          FfnModeName(engine->mode()), quality.empty() ? "" : ": ", quality));
  return kExitDone;
}

}  // namespace

void AddEvalCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "Measure the perplexity of a text");
  AddModelOptions(*command, options->model);
  AddModeOption(*command, options->model);
  command->add_option("--text", options->text_file, "file that holds the text")
      ->option_text("FILE")
      ->required()
      ->check(NotEmpty());
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &action] { action = [options] { return Evaluate(*options); }; });
}

}  // namespace hearth::cli
