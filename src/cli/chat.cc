// The chat of `hearth run` on a terminal.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "cli/text_input.h"
#include "text/chat_format.h"

namespace hearth::cli {
namespace {

// Set by Ctrl-C. The one mutable global of the program: a signal handler can reach nothing else.
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnInterrupt(int) { g_interrupted.store(true, std::memory_order_relaxed); }

// Installs the handler without SA_RESTART, so that Ctrl-C also ends a wait for input.
void CatchInterrupts() {
  struct sigaction act = {};
  act.sa_handler = OnInterrupt;
  sigemptyset(&act.sa_mask);
  sigaction(SIGINT, &act, nullptr);
}

ChatFormat ChooseFormat(const RunOptions& options, const Model& model) {
  if (!options.chat_format.empty()) {
    if (const auto format = ChatFormatFromName(options.chat_format)) return *format;
    throw UsageError(
        "--chat-format: expected chatml, llama-2, llama-3, mistral or zephyr, found '" +
        Printable(options.chat_format) + "'");
  }
  const std::string* chat_template = model.metadata().FindString("tokenizer.chat_template");
  if (chat_template == nullptr) {
    throw Error(ErrorCode::kUnsupported, model.path(),
                "the model carries no chat template: give --chat-format to chat, or a prompt with "
                "-p to continue a text");
  }
  if (const auto format = DetectChatFormat(*chat_template)) return *format;
  throw Error(ErrorCode::kUnsupported, model.path(),
              "its chat template is none of the built-in formats: give --chat-format chatml, "
              "llama-2, llama-3, mistral or zephyr");
}

// Reads one line. False at the end of input; Ctrl-C yields an empty line.
bool ReadLine(std::string& line) {
  line.clear();
  fmt::print(stderr, "> ");
  std::fflush(stderr);
  if (std::getline(std::cin, line)) return true;
  if (g_interrupted.exchange(false)) {
    std::cin.clear();
    clearerr(stdin);
    line.clear();
    fmt::print(stderr, "\n(Ctrl-D leaves)\n");
    return true;
  }
  return false;
}

class Chat {
 public:
  Chat(const RunOptions& options, Engine& engine, ChatFormat format)
      : generate_(options.generate), engine_(engine), format_(format), session_(engine) {
    generate_.cancel = &g_interrupted;
    for (std::string& stop : ChatStopStrings(format)) generate_.stop.push_back(std::move(stop));
    if (!options.system.empty()) messages_.push_back({"system", options.system});
  }

  void Answer(const std::string& question) {
    messages_.push_back({"user", question});
    std::vector<TokenId> tokens = Tokens();
    if (static_cast<int64_t>(tokens.size()) >= engine_.context()) {
      messages_.pop_back();
      fmt::print(stderr,
                 "hearth: the conversation has filled the context of {} tokens; start "
                 "again, or use a larger --ctx\n",
                 engine_.context());
      return;
    }
    KeepCommonPrefix(tokens);
    g_interrupted.store(false);
    const GenerateResult result = session_.Generate(tokens, generate_, [](std::string_view text) {
      WriteOutput(text);
      return true;
    });
    g_interrupted.store(false);
    messages_.push_back({"assistant", result.text});
    WriteOutput("\n");
    fmt::print(stderr, "({:.1f} tok/s{})\n", result.decode.TokensPerSecond(),
               result.finish_reason == FinishReason::kCancelled ? ", stopped"
               : result.finish_reason == FinishReason::kLength  ? ", cut at the length limit"
                                                                : "");
  }

 private:
  std::vector<TokenId> Tokens() const {
    const Tokenizer& tokenizer = engine_.model().tokenizer();
    std::vector<TokenId> ids;
    if (tokenizer.special().add_bos && tokenizer.special().bos >= 0) {
      ids.push_back(tokenizer.special().bos);
    }
    const auto chat = EncodeChat(tokenizer, RenderChat(format_, messages_, true));
    ids.insert(ids.end(), chat.begin(), chat.end());
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
  ChatFormat format_;
  Session session_;
  std::vector<ChatMessage> messages_;
};

}  // namespace

int RunChat(const RunOptions& options) {
  const auto engine = LoadEngine(options.model);
  const ChatFormat format = ChooseFormat(options, engine->model());
  CatchInterrupts();
  fmt::print(stderr, "{} ({} format). Ctrl-C stops an answer, Ctrl-D leaves.\n",
             options.model.model, ChatFormatName(format));
  Chat chat(options, *engine, format);
  std::string line;
  while (ReadLine(line)) {
    if (!line.empty()) chat.Answer(line);
  }
  fmt::print(stderr, "\n");
  return kExitDone;
}

}  // namespace hearth::cli
