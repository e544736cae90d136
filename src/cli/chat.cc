// The chat of `hearth run` on a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/sampling_options.h"
#include "cli/terminal.h"
#include "engine/prompt.h"
#include "text/chat_template.h"

namespace hearth::cli {
namespace {

// What a model's template may take of the memory limit: for itself, and for every byte of the
// conversation, which becomes four in each of some copies.
constexpr size_t kLeastTemplateBytes = size_t{4} << 20;
constexpr size_t kTemplateTimes = 24;

ChatTemplate ChooseTemplate(const RunOptions& options, const Model& model) {
  if (options.chat_format) return ChatTemplate::BuiltIn(*options.chat_format);
  if (auto own = ChatTemplate::FromModel(model.metadata(), model.tokenizer())) {
    return std::move(*own);
  }
  throw Error(ErrorCode::kUnsupported, model.path(),
              "the model carries no chat template: give --chat-format to chat, or a prompt with "
              "-p to continue a text");
}

class Chat {
 public:
  Chat(const RunOptions& options, Engine& engine, ChatTemplate chat_template)
      : generate_(options.generate),
        engine_(engine),
        template_(std::move(chat_template)),
        session_(engine) {
    generate_.cancel = &InterruptFlag();
    for (std::string& stop : template_.StopStrings()) generate_.stop.push_back(std::move(stop));
    if (!options.system.empty()) opening_.push_back({"system", options.system});
    messages_ = opening_;
  }

  void Answer(const std::string& question) {
    std::vector<TokenId> tokens = AddQuestion(question);
    if (tokens.empty()) return;
    KeepCommonPrefix(tokens);
    const GenerateResult result = session_.Generate(tokens, generate_, [](std::string_view text) {
      WriteOutput(text);
      return true;
    });
    ClearInterrupt();
    messages_.push_back({"assistant", result.text});
    WriteOutput("\n");
    PrintNotice(fmt::format("({:.1f} tok/s{})\n", result.decode.TokensPerSecond(),
                            result.finish_reason == FinishReason::kCancelled ? ", stopped"
                            : result.finish_reason == FinishReason::kLength
                                ? ", cut at the length limit"
                                : ""));
  }

 private:
  // Adds the question to the conversation, or begins a new one with it where it no longer fits.
  // The tokens of it all; none where the question cannot be asked.
  std::vector<TokenId> AddQuestion(const std::string& question) {
    messages_.push_back({"user", question});
    std::vector<TokenId> tokens = Tokens(messages_);
    if (!tokens.empty()) return tokens;
    std::vector<ChatMessage> anew = opening_;
    anew.push_back({"user", question});
    tokens = Tokens(anew);
    if (tokens.empty()) {
      messages_.pop_back();
      PrintNotice(fmt::format(
          "hearth: the message does not fit into the context of {} tokens; a larger --ctx holds "
          "more\n",
          engine_.context()));
      return tokens;
    }
    messages_ = std::move(anew);
    PrintNotice(fmt::format(
        "hearth: the conversation has filled the context of {} tokens and starts anew; a larger "
        "--ctx holds more\n",
        engine_.context()));
    return tokens;
  }

  // None where they would leave no room for an answer.
  std::vector<TokenId> Tokens(const std::vector<ChatMessage>& messages) const {
    const Tokenizer& tokenizer = engine_.model().tokenizer();
    // The template may take what the limit has left, and as much as a conversation needs.
    size_t most = kLeastTemplateBytes;
    for (const ChatMessage& message : messages) most += kTemplateTimes * message.content.size();
    const Budget& budget = engine_.budget();
    most = std::max<size_t>(most, budget.limit_bytes() - budget.used_bytes());
    const std::vector<ChatPiece> pieces =
        template_.Render(messages, true, {}, [most](size_t bytes) { return bytes <= most; });
    size_t bytes = 0;
    for (const ChatPiece& piece : pieces) bytes += piece.text.size();
    if (LeastTokens(tokenizer, bytes) >= engine_.context()) return {};
    std::vector<TokenId> ids = EncodeChat(tokenizer, pieces);
    if (static_cast<int64_t>(ids.size()) >= engine_.context()) ids.clear();
    return ids;
  }

  // Leaves in the session what the new conversation shares with it and drops that from `tokens`.
  // At least one token stays to be computed: its logits are the next ones needed.
  void KeepCommonPrefix(std::vector<TokenId>& tokens) {
    const auto& history = session_.history();
    const size_t limit = std::min(history.size(), tokens.size() - 1);
    size_t common = 0;
    while (common < limit && history[common] == tokens[common]) ++common;
    session_.Truncate(static_cast<int64_t>(common));
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(common));
  }

  GenerateOptions generate_;
  Engine& engine_;
  ChatTemplate template_;
  Session session_;
  std::vector<ChatMessage> opening_;  // of every conversation: the system message, if any
  std::vector<ChatMessage> messages_;
};

}  // namespace

int RunChat(const RunOptions& options) {
  const auto engine = LoadEngine(options.model);
  ChatTemplate chat_template = ChooseTemplate(options, engine->model());
  CheckLogitBias(options.generate.sampling, engine->model().tokenizer());
  CatchInterrupts();
  if (options.verbose) {
    PrintNotice(EngineText(*engine, options.model) + "memory\n" + LedgerText(*engine));
  }
  PrintNotice(fmt::format("{} ({}). Ctrl-C stops an answer, Ctrl-D leaves.\n", options.model.model,
                          chat_template.Describe()));
  Chat chat(options, *engine, std::move(chat_template));
  LineReader input;
  std::string line;
  for (;;) {
    PrintNotice("> ");
    switch (input.Read(line)) {
      case LineReader::Result::kLine:
        if (!line.empty()) chat.Answer(line);
        break;
      case LineReader::Result::kInterrupted:
        PrintNotice("\n(Ctrl-D leaves)\n");
        break;
      case LineReader::Result::kEnd:
        PrintNotice("\n");
        return kExitDone;
    }
  }
}

}  // namespace hearth::cli
