// hearth eval: perplexity of a text, or the questions that are answered right.
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/options/text_input.h"
#include "cli/plan/settle_plan.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "measure/evaluate.h"
#include "measure/task.h"

namespace hearth::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::string text_file;
  std::string task_file;
  uint64_t questions = std::numeric_limits<uint64_t>::max();
  bool json = false;
};

nlohmann::ordered_json ShareJson(const TaskShare& share) {
  return {{"share", share.share}, {"standard_error", share.error}};
}

std::string ShareText(const char* name, const TaskShare& share) {
  return fmt::format("{} {:.1f}% +- {:.1f}", name, 100 * share.share, 100 * share.error);
}

std::string TaskText(const TaskResult& result) {
  std::string text = ShareText("accuracy", result.accuracy);
  if (result.kind == TaskKind::kChoices) {
    text += ", " + ShareText("by character", result.normalized_accuracy);
  }
  if (result.kind == TaskKind::kLastWord) {
    text += fmt::format(", perplexity {:.3f} a word", result.perplexity);
  }
  return text;
}

int EvaluateTask(EvalOptions& options) {
  const std::string text = ReadTextFile(options.task_file);
  const std::vector<TaskQuestion> questions = ReadTask(text, options.task_file, options.questions);
  options.model.model = FindModel(options.model.model);
  SettlePlan(options.model);
  const auto engine = LoadEngine(options.model);
  TaskResult result;
  {
    ProgressLine progress("answering", ProgressUnit::kQuestions);
    result = AnswerTask(*engine, questions, [&](uint64_t done, uint64_t right) {
      progress.Update(done, questions.size(),
                      fmt::format("{:.1f}% right",
                                  100 * static_cast<double>(right) / static_cast<double>(done)));
    });
  }
  WriteDeviceTrace(options.model.device, *engine);
  const char* const mode = FfnModeName(engine->mode());
  if (options.json) {
    nlohmann::ordered_json json = {{"kind", TaskKindName(result.kind)},
                                   {"questions", result.questions},
                                   {"right", result.right},
                                   {"accuracy", ShareJson(result.accuracy)},
                                   {"tokens_run", result.tokens},
                                   {"mode", mode}};
    if (result.kind == TaskKind::kChoices) {
      json["accuracy_by_character"] = ShareJson(result.normalized_accuracy);
    }
    if (result.kind == TaskKind::kLastWord) json["perplexity_per_word"] = result.perplexity;
    WriteOutput(DumpJson(json));
    return kExitDone;
  }
  WriteOutput(fmt::format("{} ({} of {} questions, {})\n", TaskText(result), result.right,
                          result.questions, mode));
  return kExitDone;
}

int EvaluatePerplexity(EvalOptions& options) {
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
  WriteDeviceTrace(options.model.device, *engine);
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
  CLI::App* command =
      app.add_subcommand("eval", "Measure the perplexity of a text, or answers to questions");
  AddModelOptions(*command, options->model);
  AddModeOption(*command, options->model);
  CLI::Option* text =
      AddFileOption(*command, "--text", options->text_file, "file that holds the text");
  CLI::Option* task = AddFileOption(*command, "--task", options->task_file,
                                    "file of questions with known answers, one JSON object a line")
                          ->excludes(text);
  command
      ->add_option("--questions", options->questions,
                   "answer only the first N questions of the task")
      ->option_text("N")
      ->needs(task)
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "print one JSON document");
  command->callback([options, &action] {
    if (options->text_file.empty() && options->task_file.empty()) {
      throw CLI::RequiredError("--text or --task");
    }
    action = [options] {
      return options->task_file.empty() ? EvaluatePerplexity(*options) : EvaluateTask(*options);
    };
  });
}

}  // namespace hearth::cli
