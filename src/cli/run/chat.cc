// The chat of `hearth run`: one question from the command line, or a conversation on a terminal.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/sampling_options.h"
#include "cli/run/chat_commands.h"
#include "cli/run/conversation.h"
#include "cli/run/run_options.h"
#include "cli/screen/interrupts.h"
#include "cli/screen/line_editor.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"

namespace hearth::cli {
namespace {

GenerateOptions ChatOptions(const RunOptions& options, const Engine& engine) {
  GenerateOptions generate = options.generate;
  generate.cancel = &InterruptFlag();
  // No answer is longer than the context.
  generate.max_tokens = options.max_tokens.value_or(engine.context());
  return generate;
}

// Shows an answer. What a model thinks goes to standard error: a pipe gets what it says.
class AnswerPrinter {
 public:
  bool operator()(std::string_view text, bool is_thought) {
    if (is_thought) {
      PrintNotice(Dim(text));
      has_thoughts_ = true;
    } else if (!text.empty()) {
      if (std::exchange(has_thoughts_, false)) PrintNotice("\n\n");
      WriteOutput(text);
    }
    return true;
  }

 private:
  bool has_thoughts_ = false;  // since the last text
};

bool PrintNothing(std::string_view, bool) { return true; }

// What an answer came with.
void PrintSpeed(const GenerateResult& result) {
  PrintNotice(fmt::format("({:.1f} tok/s{})\n", result.decode.TokensPerSecond(),
                          result.finish_reason == FinishReason::kCancelled ? ", stopped"
                          : result.finish_reason == FinishReason::kLength
                              ? ", cut at the length limit"
                              : ""));
}

// Asks through `ask` and shows the answer.
template <typename Ask>
void ShowAnswer(ChatCommands& commands, Ask&& ask) {
  const std::optional<ChatAnswer> answer = ask();
  ClearInterrupt();
  if (!answer) return;
  WriteOutput("\n");
  PrintSpeed(answer->result);
  commands.Remember(answer->result);
}

// Answers until the user leaves.
int Converse(const RunOptions& options, Engine& engine) {
  ChatTemplate chat_template = ChooseTemplate(options.chat_format, engine.model());
  CheckLogitBias(options.generate.sampling, engine.model().tokenizer());
  CatchInterrupts();
  if (options.verbose) {
    PrintNotice(EngineText(engine, options.model) + "memory\n" + LedgerText(engine));
  }
  PrintNotice(
      fmt::format("{} ({}), context {} tokens. /help lists commands, Ctrl-C stops an "
                  "answer, Ctrl-D leaves.\n",
                  options.model.model, chat_template.Describe(), engine.context()));
  Conversation conversation(engine, std::move(chat_template), options.system,
                            ChatOptions(options, engine));
  ChatCommands* shown = nullptr;
  ChatCommands commands(conversation, [&] {
    ShowAnswer(*shown, [&] { return conversation.AskAgain(AnswerPrinter()); });
  });
  shown = &commands;
  LineEditor input("> ", ChatHistoryPath());
  std::string message;
  for (;;) {
    switch (input.Read(message)) {
      case LineEditor::Result::kMessage:
        if (message.empty()) break;
        if (ChatCommands::IsCommand(message)) {
          if (!commands.Run(message)) return kExitDone;
          break;
        }
        ShowAnswer(commands, [&] { return conversation.Ask(message, AnswerPrinter()); });
        break;
      case LineEditor::Result::kInterrupted:
        PrintNotice("\n(Ctrl-D leaves)\n");
        break;
      case LineEditor::Result::kEnd:
        PrintNotice("\n");
        return kExitDone;
    }
  }
}

}  // namespace

int RunChat(const RunOptions& options) {
  CheckTemplate(options.chat_format, options.model.model);
  const auto engine = LoadEngine(options.model);
  const int exit_code = Converse(options, *engine);
  WriteDeviceTrace(options.model.device, *engine);
  return exit_code;
}

ChatAnswer AnswerOnce(const RunOptions& options, Engine& engine, ChatTemplate chat_template,
                      const std::string& question) {
  CatchInterrupts();
  Conversation conversation(engine, std::move(chat_template), options.system,
                            ChatOptions(options, engine));
  std::optional<ChatAnswer> answer =
      conversation.Ask(question, options.json ? PieceFn(PrintNothing) : PieceFn(AnswerPrinter()));
  if (!answer) {
    throw Error(ErrorCode::kContextFull, "prompt",
                fmt::format("it does not fit into the context of {} tokens; a larger --ctx holds "
                            "more",
                            engine.context()));
  }
  return *std::move(answer);
}

}  // namespace hearth::cli
