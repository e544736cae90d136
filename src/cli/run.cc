// hearth run: one completion, or a chat on the terminal.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/find_model.h"
#include "cli/option_values.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/sampling_options.h"
#include "cli/settle_plan.h"
#include "cli/text_input.h"
#include "engine/prompt.h"

namespace hearth::cli {
namespace {

constexpr int64_t kDefaultTokens = 256;

ChatFormat ParseChatFormat(const std::string& name) {
  if (const auto format = ChatFormatFromName(name)) return *format;
  throw UsageError("--chat-format: expected chatml, llama-2, llama-3, mistral or zephyr, found '" +
                   Printable(name) + "'");
}

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
    if (!is_chat && given(flag)) {
      throw UsageError(std::string(flag) + " has no effect on a completion, only in a chat");
    }
  }
}

std::string ReadPrompt(const RunOptions& options) {
  if (options.prompt) return *options.prompt;
  if (!options.prompt_file.empty()) return ReadTextFile(options.prompt_file);
  return ReadStandardInput();
}

void PrintStatistics(const Engine& engine, const GenerateResult& result, bool verbose) {
  if (verbose) {
    PrintNotice("\nmemory\n" + LedgerText(engine));
  }
  PrintNotice(
      fmt::format("\nprefill {} tokens in {:.0f} ms ({:.1f} tok/s), decode {} tokens in {:.0f} ms "
                  "({:.1f} tok/s), {}\n",
                  result.prefill.tokens, result.prefill.ms, result.prefill.TokensPerSecond(),
                  result.decode.tokens, result.decode.ms, result.decode.TokensPerSecond(),
                  FinishReasonName(result.finish_reason)));
  if (verbose && engine.is_streamed()) {
    PrintNotice(IoText(engine, result.stream, result.decode.tokens) + "\n");
  }
}

}  // namespace

int RunCompletion(const RunOptions& options) {
  const std::string text = ReadPrompt(options);
  const auto engine = LoadEngine(options.model);
  if (options.verbose) PrintNotice(EngineText(*engine, options.model));
  CheckLogitBias(options.generate.sampling, engine->model().tokenizer());
  const std::vector<TokenId> prompt =
      EncodePrompt(engine->model(), text, engine->context(), {.parse_special = options.special});
  Session session(*engine);
  TextFn print;
  if (!options.json) {
    print = [](std::string_view piece) {
      WriteOutput(piece);
      return true;
    };
  }
  const GenerateResult result = session.Generate(prompt, options.generate, print);
  if (!options.json) {
    PrintStatistics(*engine, result, options.verbose);
    return kExitDone;
  }
  WriteOutput(DumpJson({{"text", result.text},
                        {"tokens", result.token_ids.size()},
                        {"token_ids", result.token_ids},
                        {"finish_reason", FinishReasonName(result.finish_reason)},
                        {"prefill", PhaseJson(result.prefill)},
                        {"decode", PhaseJson(result.decode)},
                        {"memory", MemoryJson(*engine, options.model)},
                        {"io", IoJson(*engine, result.stream, result.decode.tokens, {})}}));
  return kExitDone;
}

void AddRunCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  options->generate.max_tokens = kDefaultTokens;
  CLI::App* command = app.add_subcommand(
      "run", "Complete a prompt, or chat when started on a terminal without one");
  AddModelOptions(*command, options->model);
  AddModeOption(*command, options->model);
  auto* prompt = command
                     ->add_option("-p,--prompt", options->prompt,
                                  "the prompt ('' is the bare start of a text)")
                     ->option_text("TEXT");
  command->add_option("-f,--file", options->prompt_file, "file that holds the prompt")
      ->option_text("FILE")
      ->check(NotEmpty())
      ->excludes(prompt);
  command->add_flag("--special", options->special, "read special tokens in the prompt");
  command->add_option("-n,--tokens", options->generate.max_tokens, "tokens at most (256)")
      ->option_text("N")
      ->check(WholeIn(1, int64_t{1} << 31));
  command->add_option("--stop", options->generate.stop, "end at this text; may be repeated")
      ->option_text("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->check(NotEmpty());
  command
      ->add_option_function<std::string>(
          "--chat-format",
          [options](const std::string& name) { options->chat_format = ParseChatFormat(name); },
          "chatml, llama-2, llama-3, mistral or zephyr (default: the model's own template)")
      ->option_text("NAME");
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
    action = [options, is_chat] {
      options->model.model = FindModel(options->model.model);
      SettlePlan(options->model);
      return is_chat ? RunChat(*options) : RunCompletion(*options);
    };
  });
}

}  // namespace hearth::cli
