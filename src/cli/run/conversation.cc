#include "cli/run/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "engine/session/prompt.h"

namespace hearth::cli {
namespace {

// An answer should have room for this many tokens before old turns are kept, but for a quarter of
// the context where that is less.
constexpr int64_t kAnswerTokens = 512;
// What a model's template may take of the memory limit: for itself, and for every byte of the
// conversation, which becomes four in each of some copies.
constexpr size_t kLeastTemplateBytes = size_t{4} << 20;
constexpr size_t kTemplateTimes = 24;

[[noreturn]] void RefuseToChat(const std::string& model) {
  throw Error(ErrorCode::kUnsupported, model,
              "the model carries no chat template: give --chat-format to chat, or a prompt with -p "
              "to continue a text");
}

}  // namespace

ChatTemplate ChooseTemplate(const std::optional<ChatFormat>& format, const Model& model) {
  if (format) return ChatTemplate::BuiltIn(*format);
  if (auto own = ChatTemplate::FromModel(model.metadata(), model.tokenizer())) {
    return std::move(*own);
  }
  RefuseToChat(model.path());
}

void CheckTemplate(const std::optional<ChatFormat>& format, const std::string& model) {
  if (format || GgufFile::Open(model).metadata().Has("tokenizer.chat_template")) return;
  RefuseToChat(model);
}

Conversation::Conversation(Engine& engine, ChatTemplate chat_template, std::string system,
                           const GenerateOptions& generate)
    : engine_(engine),
      template_(std::move(chat_template)),
      session_(engine),
      generate_(generate),
      system_(std::move(system)) {
  for (std::string& stop : template_.StopStrings()) generate_.stop.push_back(std::move(stop));
}

std::optional<GenerateResult> Conversation::Ask(const std::string& question,
                                                const TextFn& on_text) {
  turns_.push_back({"user", question});
  return Answer(on_text);
}

std::optional<GenerateResult> Conversation::AskAgain(const TextFn& on_text) {
  if (turns_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "conversation", "nothing was asked yet");
  }
  if (turns_.back().role == "assistant") turns_.pop_back();
  return Answer(on_text);
}

bool Conversation::Undo() {
  if (turns_.empty()) return false;
  while (!turns_.empty() && turns_.back().role != "user") turns_.pop_back();
  if (!turns_.empty()) turns_.pop_back();
  first_turn_ = std::min(first_turn_, turns_.size());
  return true;
}

void Conversation::Restart(std::string system) {
  system_ = std::move(system);
  turns_.clear();
  first_turn_ = 0;
}

void Conversation::Replace(std::string system, std::vector<ChatMessage> turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    const char* expected = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role != expected) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("message {}", i), "role", expected,
                  turns[i].role);
    }
  }
  if (turns.size() % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument, "messages", "the last question has no answer");
  }
  Restart(std::move(system));
  turns_ = std::move(turns);
}

std::optional<GenerateResult> Conversation::Answer(const TextFn& on_text) {
  std::vector<TokenId> tokens = Prompt();
  if (tokens.empty()) {
    turns_.pop_back();
    return std::nullopt;
  }
  KeepCommonPrefix(tokens);
  std::optional<ProgressLine> progress;
  progress.emplace("reading the prompt", ProgressUnit::kTokens);
  GenerateOptions options = generate_;
  options.on_prefill = [&](int64_t done, int64_t total) {
    progress->Update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  GenerateResult result = session_.Generate(tokens, options, [&](std::string_view text) {
    progress.reset();
    return on_text(text);
  });
  turns_.push_back({"assistant", result.text});
  return result;
}

// The conversation with as many of its newest turns as leave room for an answer; none where not
// even the last question does.
std::vector<TokenId> Conversation::Prompt() {
  const int64_t context = engine_.context();
  const int64_t room = std::min(kAnswerTokens, context / 4);
  const size_t last = turns_.size() - 1;
  const size_t before = std::min(first_turn_, last);
  for (first_turn_ = before; first_turn_ <= last; first_turn_ += 2) {
    std::vector<TokenId> tokens = Tokens(first_turn_);
    const int64_t wanted = first_turn_ == last ? 1 : room;
    if (tokens.empty() || std::ssize(tokens) + wanted > context) continue;
    if (first_turn_ > before) {
      PrintNotice(fmt::format(
          "hearth: the context of {} tokens is full: the {} oldest of {} messages are left out; a "
          "larger --ctx holds more\n",
          context, first_turn_, turns_.size()));
    }
    return tokens;
  }
  first_turn_ = before;
  PrintNotice(fmt::format(
      "hearth: the message does not fit into the context of {} tokens; a larger --ctx holds more\n",
      context));
  return {};
}

// Of the turns from this one on; none where there are more than the context holds.
std::vector<TokenId> Conversation::Tokens(size_t first_turn) const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.insert(messages.end(), turns_.begin() + static_cast<ptrdiff_t>(first_turn),
                  turns_.end());
  const Tokenizer& tokenizer = engine_.model().tokenizer();
  // The template may take what the limit has left, and as much as a conversation needs.
  size_t most = kLeastTemplateBytes;
  for (const ChatMessage& message : messages) most += kTemplateTimes * message.content.size();
  const Budget& budget = engine_.budget();
  most = std::max<size_t>(most, budget.limit_bytes() - budget.used_bytes());
  const std::vector<ChatPiece> pieces =
      template_.Render(messages, true, {}, {}, [most](size_t bytes) { return bytes <= most; });
  size_t bytes = 0;
  for (const ChatPiece& piece : pieces) bytes += piece.text.size();
  if (LeastTokens(tokenizer, bytes) >= engine_.context()) return {};
  return EncodeChat(tokenizer, pieces);
}

// Leaves in the session what the new prompt shares with it and drops that from `tokens`. At least
// one token stays to be computed: its logits are the next ones needed.
void Conversation::KeepCommonPrefix(std::vector<TokenId>& tokens) {
  const auto& history = session_.history();
  const size_t limit = std::min(history.size(), tokens.size() - 1);
  size_t common = 0;
  while (common < limit && history[common] == tokens[common]) ++common;
  session_.Truncate(static_cast<int64_t>(common));
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(common));
}

}  // namespace hearth::cli
