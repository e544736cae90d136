// hearth run: one answer or completion, or a chat on the terminal.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/models/find_model.h"
#include "cli/options/option_values.h"
#include "cli/options/sampling_options.h"
#include "cli/options/text_input.h"
#include "cli/plan/settle_plan.h"
#include "cli/run/conversation.h"
#include "cli/run/run_options.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "cli/screen/report.h"
#include "engine/session/prompt.h"
#include "hearth/hearth.hpp"

namespace hearth::cli {
namespace {

constexpr int64_t kDefaultTokens = 256;

// Flags that would do nothing are refused, so that nobody believes they did something.
void RefuseFlagsWithoutEffect(const CLI::App& command, const RunOptions& options, bool is_chat) {
  const auto given = [&](const char* flag) { return command.count(flag) > 0; };
  if (is_chat && options.json) {
    throw UsageError("--json needs a prompt: give -p or -f, or the prompt on standard input");
  }
  if (is_chat && options.special) {
    throw UsageError("--special needs a prompt: in a chat the program writes the special tokens");
  }
  for (const char* flag : {"--chat-format", "--system"}) {
    if (options.raw && given(flag)) {
      throw UsageError(std::string(flag) + " has no effect with --raw, only in a chat");
    }
  }
  if (is_chat && options.raw) {
    throw UsageError("--raw needs a prompt: give -p or -f, or the prompt on standard input");
  }
}

std::string ReadPrompt(const RunOptions& options) {
  if (options.prompt) return *options.prompt;
  if (!options.prompt_file.empty()) return ReadTextFile(options.prompt_file);
  return ReadStandardInput();
}

void PrintStatistics(const Engine& engine, const GenerateResult& result,
                     const RunOptions& options) {
  if (options.verbose) {
    PrintNotice(
        fmt::format("\nseed {}\nmemory\n{}", options.generate.sampling.seed, LedgerText(engine)));
  }
  PrintNotice(
      fmt::format("\nprefill {} tokens in {:.0f} ms ({:.1f} tok/s), decode {} tokens in {:.0f} ms "
                  "({:.1f} tok/s), {}\n",
                  result.prefill.tokens, result.prefill.ms, result.prefill.TokensPerSecond(),
                  result.decode.tokens, result.decode.ms, result.decode.TokensPerSecond(),
                  FinishReasonName(result.finish_reason)));
  if (options.verbose && engine.is_streamed()) {
    PrintNotice(IoText(engine, result.stream, result.decode.tokens) + "\n");
  }
}

// How the prompt is to be put to the model; nothing where it is to be continued. The empty prompt
// is the bare start of a text.
std::optional<ChatTemplate> TemplateFor(const RunOptions& options, const Model& model,
                                        const std::string& prompt) {
  if (options.raw || options.special || prompt.empty()) return std::nullopt;
  if (options.chat_format || !options.system.empty()) {
    return ChooseTemplate(options.chat_format, model);
  }
  return ChatTemplate::FromModel(model.metadata(), model.tokenizer());
}

GenerateResult Complete(const RunOptions& options, Engine& engine, const std::string& text) {
  const std::vector<TokenId> prompt =
      EncodePrompt(engine.model(), text, engine.context(), {.parse_special = options.special});
  Session session(engine);
  GenerateOptions generate = options.generate;
  generate.max_tokens = options.max_tokens.value_or(kDefaultTokens);
  std::optional<ProgressLine> progress;
  progress.emplace("reading the prompt", ProgressUnit::kTokens);
  generate.on_prefill = [&](int64_t done, int64_t total) {
    progress->Update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  const auto print = [&](std::string_view piece) {
    progress.reset();
    if (!options.json) WriteOutput(piece);
    return true;
  };
  // A reader sees the whole text, as it will stand there.
  if (!options.json && StandardOutputIsTerminal()) WriteOutput(text);
  return session.Generate(prompt, generate, print);
}

}  // namespace

int RunPrompt(const RunOptions& options) {
  const std::string text = ReadPrompt(options);
  if (!options.system.empty()) CheckTemplate(options.chat_format, options.model.model);
  const auto engine = LoadEngine(options.model);
  if (options.verbose) PrintNotice(EngineText(*engine, options.model));
  CheckLogitBias(options.generate.sampling, engine->model().tokenizer());
  std::optional<ChatTemplate> chat_template = TemplateFor(options, engine->model(), text);
  if (options.verbose && chat_template) {
    PrintNotice(fmt::format("asked in {}; --raw continues the text\n", chat_template->Describe()));
  }
  const ChatAnswer answer = chat_template
                                ? AnswerOnce(options, *engine, *std::move(chat_template), text)
                                : ChatAnswer{Complete(options, *engine, text), ""};
  const GenerateResult& result = answer.result;
  WriteDeviceTrace(options.model.device, *engine);
  if (!options.json) {
    PrintStatistics(*engine, result, options);
    return kExitDone;
  }
  WriteOutput(DumpJson({{"text", result.text},
                        {"reasoning", answer.reasoning},
                        {"tokens", result.token_ids.size()},
                        {"token_ids", result.token_ids},
                        {"finish_reason", FinishReasonName(result.finish_reason)},
                        {"seed", options.generate.sampling.seed},
                        {"prefill", PhaseJson(result.prefill)},
                        {"decode", PhaseJson(result.decode)},
                        {"memory", MemoryJson(*engine, options.model)},
                        {"io", IoJson(*engine, result.stream, result.decode.tokens, {})}}));
  return kExitDone;
}

void AddRunCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      app.add_subcommand("run", "Answer a prompt, or chat when started on a terminal without one");
  AddModelOptions(*command, options->model);
  AddModeOption(*command, options->model);
  auto* words = command->add_option("TEXT", options->prompt, "the same as with -p");
  auto* prompt = command->add_option("-p,--prompt", options->prompt,
                                     "the question, or with --raw the text to continue ('' is the "
                                     "bare start of a text)");
  prompt->option_text("TEXT")->excludes(words);
  AddFileOption(*command, "-f,--file", options->prompt_file,
                "file that holds the prompt; -: standard input")
      ->excludes(prompt)
      ->excludes(words);
  command->add_flag("--raw", options->raw,
                    "continue the prompt (what a model without a chat template does anyway)");
  command->add_flag("--special", options->special,
                    "read special tokens in the prompt, which is continued then");
  command
      ->add_option("-n,--tokens", options->max_tokens,
                   "tokens at most (256 of a completion; an answer: what the context holds)")
      ->option_text("N")
      ->check(WholeIn(1, int64_t{1} << 31));
  command->add_option("--stop", options->generate.stop, "end at this text; may be repeated")
      ->option_text("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->check(NotEmpty());
  AddChatFormatOption(*command, options->chat_format);
  command->add_option("--system", options->system, "system message of a chat")
      ->option_text("TEXT")
      ->check(NotEmpty());
  command->add_flag("--json", options->json, "print one JSON document instead of the text");
  command->add_flag("--verbose", options->verbose, "also print the kernels and the memory ledger");
  AddSamplingOptions(*command, options->generate.sampling);
  command->callback([command, options, &action] {
    const bool is_chat =
        !options->prompt && options->prompt_file.empty() && StandardInputIsTerminal();
    RefuseFlagsWithoutEffect(*command, *options, is_chat);
    CheckSamplingOptions(*command, options->generate.sampling);
    if (command->count("--seed") == 0) options->generate.sampling.seed = api::RandomSeed();
    action = [options, is_chat] {
      options->model.model = FindModel(options->model.model);
      SettlePlan(options->model);
      return is_chat ? RunChat(*options) : RunPrompt(*options);
    };
  });
}

}  // namespace hearth::cli
