// hearth run: one completion, or a chat on the terminal.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/text_input.h"

namespace hearth::cli {
namespace {

constexpr int64_t kDefaultTokens = 256;

// "12=-1.5" of --logit-bias.
void AddLogitBias(const std::string& text, SamplingOptions& sampling) {
  const size_t equals = text.find('=');
  try {
    size_t used = 0;
    const int id = std::stoi(text.substr(0, equals), &used);
    if (equals == std::string::npos || used != equals || id < 0) throw std::invalid_argument("");
    const std::string value = text.substr(equals + 1);
    const float bias = std::stof(value, &used);
    if (used != value.size()) throw std::invalid_argument("");
    sampling.logit_bias[id] = bias;
  } catch (const std::logic_error&) {
    throw UsageError("--logit-bias: expected TOKEN_ID=NUMBER, found '" + Printable(text) + "'");
  }
}

void AddSamplingOptions(CLI::App& command, SamplingOptions& s) {
  const std::string group = "Sampling";
  command.add_option("--temp", s.temperature, "temperature; 0 takes the most likely (0.8)")
      ->option_text("T")
      ->group(group);
  command.add_option("--seed", s.seed, "same seed, same text (0)")->option_text("S")->group(group);
  command.add_option("--top-k", s.top_k, "keep the K most likely tokens; 0: all (40)")
      ->option_text("K")
      ->group(group);
  command.add_option("--top-p", s.top_p, "keep the most likely up to this probability (0.95)")
      ->option_text("P")
      ->group(group);
  command.add_option("--min-p", s.min_p, "keep tokens with this share of the best one (0)")
      ->option_text("P")
      ->group(group);
  command.add_option("--repetition-penalty", s.repetition_penalty, "over recent tokens (1: none)")
      ->option_text("X")
      ->group(group);
  command
      .add_option("--repetition-window", s.repetition_window,
                  "recent tokens that it looks at; -1: all (64)")
      ->option_text("N")
      ->group(group);
  command.add_option("--frequency-penalty", s.frequency_penalty, "per earlier occurrence (0)")
      ->option_text("X")
      ->group(group);
  command.add_option("--presence-penalty", s.presence_penalty, "once per token that occurred (0)")
      ->option_text("X")
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&s](const std::vector<std::string>& items) {
            for (const std::string& item : items) AddLogitBias(item, s);
          },
          "add X to the logit of token ID; may be repeated")
      ->option_text("ID=X")
      ->group(group);
}

// Flags that would do nothing are refused, so that nobody believes they did something.
void RefuseFlagsWithoutEffect(const CLI::App& command, const RunOptions& options, bool is_chat) {
  const auto given = [&](const char* flag) { return command.count(flag) > 0; };
  if (options.generate.sampling.temperature == 0) {
    for (const char* flag : {"--seed", "--top-k", "--top-p", "--min-p"}) {
      if (given(flag)) throw UsageError(std::string(flag) + " has no effect with --temp 0");
    }
  }
  if (given("--repetition-window") && options.generate.sampling.repetition_penalty == 1) {
    throw UsageError("--repetition-window has no effect without --repetition-penalty");
  }
  if (is_chat && options.json) {
    throw UsageError("--json needs a prompt: give -p or -f, or the prompt on standard input");
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

std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  if (tokenizer.special().add_bos && tokenizer.special().bos >= 0) {
    ids.push_back(tokenizer.special().bos);
  }
  const std::vector<TokenId> rest = tokenizer.Encode(text);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

void PrintStatistics(const Engine& engine, const GenerateResult& result, bool verbose) {
  if (verbose) {
    fmt::print(stderr, "\nmemory\n{}", LedgerText(engine));
  }
  fmt::print(stderr,
             "\nprefill {} tokens in {:.0f} ms ({:.1f} tok/s), decode {} tokens in {:.0f} ms "
             "({:.1f} tok/s), {}\n",
             result.prefill.tokens, result.prefill.ms, result.prefill.TokensPerSecond(),
             result.decode.tokens, result.decode.ms, result.decode.TokensPerSecond(),
             FinishReasonName(result.finish_reason));
}

}  // namespace

int RunCompletion(const RunOptions& options) {
  const std::string text = ReadPrompt(options);
  const auto engine = LoadEngine(options.model);
  if (options.verbose) {
    fmt::print(stderr, "{} on {} threads with {} kernels, context {} tokens\n", options.model.model,
               engine->compute().threads(), engine->compute().isa(), engine->context());
  }
  const std::vector<TokenId> prompt = EncodePrompt(engine->model().tokenizer(), text);
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
                        {"memory", MemoryJson(*engine)},
                        {"io", nullptr}}));
  return kExitDone;
}

void AddRunCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  options->generate.max_tokens = kDefaultTokens;
  CLI::App* command = app.add_subcommand(
      "run", "Complete a prompt, or chat when started on a terminal without one");
  AddModelOptions(*command, options->model);
  auto* prompt = command
                     ->add_option("-p,--prompt", options->prompt,
                                  "the prompt ('' is the bare start of a text)")
                     ->option_text("TEXT");
  command->add_option("-f,--file", options->prompt_file, "file that holds the prompt")
      ->option_text("FILE")
      ->excludes(prompt);
  command->add_option("-n,--tokens", options->generate.max_tokens, "tokens at most (256)")
      ->option_text("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_option("--stop", options->generate.stop, "end at this text; may be repeated")
      ->option_text("TEXT")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--chat-format", options->chat_format,
                   "chatml, llama-2, llama-3, mistral or zephyr (default: the model's)")
      ->option_text("NAME");
  command->add_option("--system", options->system, "system message of a chat")->option_text("TEXT");
  command->add_flag("--json", options->json, "print one JSON document instead of the text");
  command->add_flag("--verbose", options->verbose, "also print the kernels and the memory ledger");
  AddSamplingOptions(*command, options->generate.sampling);
  command->callback([command, options, &action] {
    const bool is_chat =
        !options->prompt && options->prompt_file.empty() && StandardInputIsTerminal();
    RefuseFlagsWithoutEffect(*command, *options, is_chat);
    ValidateSampling(options->generate.sampling);
    action = [options, is_chat] { return is_chat ? RunChat(*options) : RunCompletion(*options); };
  });
}

}  // namespace hearth::cli
