#include "cli/run/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/screen/output.h"
#include "cli/screen/progress.h"
#include "engine/session/prompt.h"
#include "import/open_model.h"

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
  if (format || OpenModel(model).metadata().Has("tokenizer.chat_template")) return;
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

std::optional<ChatAnswer> Conversation::Ask(const std::string& question, const PieceFn& on_piece) {
  turns_.push_back({"user", question});
  return Answer(on_piece);
}

std::optional<ChatAnswer> Conversation::AskAgain(const PieceFn& on_piece) {
  if (turns_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "conversation", "nothing was asked yet");
  }
  if (turns_.back().role == "assistant") turns_.pop_back();
  return Answer(on_piece);
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

std::optional<ChatAnswer> Conversation::Answer(const PieceFn& on_piece) {
  Prompt prompt = MakePrompt();
  if (prompt.tokens.empty()) {
    turns_.pop_back();
    return std::nullopt;
  }
  KeepCommonPrefix(prompt.tokens);
  std::optional<ProgressLine> progress;
  progress.emplace("reading the prompt", ProgressUnit::kTokens);
  GenerateOptions options = generate_;
  options.visible_tokens = VisibleTokens(prompt.form, engine_.model().tokenizer());
  options.on_prefill = [&](int64_t done, int64_t total) {
    progress->Update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  ChatAnswer answer = Generate(prompt, options, [&](std::string_view text, bool is_thought) {
    progress.reset();
    return on_piece(text, is_thought);
  });
  turns_.push_back({.role = "assistant", .content = answer.result.text});
  turns_.back().reasoning = answer.reasoning;
  return answer;
}

ChatAnswer Conversation::Generate(const Prompt& prompt, const GenerateOptions& options,
                                  const PieceFn& on_piece) {
  ChatAnswer answer;
  std::string said;
  AnswerReader reader(prompt.form);
  const auto tell = [&](const std::vector<AnswerPart>& parts) {
    bool is_wanted = true;
    for (const AnswerPart& part : parts) {
      (part.is_thought ? answer.reasoning : said) += part.text;
      is_wanted = on_piece(part.text, part.is_thought) && is_wanted;
    }
    return is_wanted;
  };
  answer.result = session_.Generate(prompt.tokens, options,
                                    [&](std::string_view text) { return tell(reader.Push(text)); });
  tell(reader.Finish());
  answer.result.text = std::move(said);
  return answer;
}

// The conversation with as many of its newest turns as leave room for an answer; none where not
// even the last question does.
Conversation::Prompt Conversation::MakePrompt() {
  const int64_t context = engine_.context();
  const int64_t room = std::min(kAnswerTokens, context / 4);
  const size_t last = turns_.size() - 1;
  const size_t before = std::min(first_turn_, last);
  for (first_turn_ = before; first_turn_ <= last; first_turn_ += 2) {
    Prompt prompt = PromptFrom(first_turn_);
    const int64_t wanted = first_turn_ == last ? 1 : room;
    if (prompt.tokens.empty() || std::ssize(prompt.tokens) + wanted > context) continue;
    if (first_turn_ > before) {
      PrintNotice(fmt::format(
          "hearth: the context of {} tokens is full: the {} oldest of {} messages are left out; a "
          "larger --ctx holds more\n",
          context, first_turn_, turns_.size()));
    }
    return prompt;
  }
  first_turn_ = before;
  PrintNotice(fmt::format(
      "hearth: the message does not fit into the context of {} tokens; a larger --ctx holds more\n",
      context));
  return {};
}

// Of the turns from this one on; none where there are more than the context holds.
Conversation::Prompt Conversation::PromptFrom(size_t first_turn) const {
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
  return {EncodeChat(tokenizer, pieces), {.thinking = template_.ThinkingOf(pieces)}};
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
