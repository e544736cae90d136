#include "cli/run/chat_commands.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "cli/options/text_input.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "plan/json_object.h"
#include "storage/atomic_file.h"

namespace hearth::cli {
namespace {

constexpr size_t kMostMessages = 100000;
constexpr size_t kMostMessageBytes = size_t{1} << 26;

std::string Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpaces) - first + 1));
}

// One of the settings of /set.
struct Setting {
  const char* name;
  const char* what;
  void (*set)(GenerateOptions& options, const std::string& value);
  std::string (*get)(const GenerateOptions& options);
};

template <typename T>
T ParseAs(const std::string& value) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    throw Error(ErrorCode::kInvalidArgument, "value", "expected a number, found '" + value + "'");
  }
  return number;
}

template <auto SamplingOptions::*kMember>
constexpr Setting OfSampling(const char* name, const char* what) {
  using T = std::remove_cvref_t<decltype(std::declval<SamplingOptions>().*kMember)>;
  return {
      name, what,
      [](GenerateOptions& options, const std::string& value) {
        options.sampling.*kMember = ParseAs<T>(value);
      },
      [](const GenerateOptions& options) { return fmt::format("{}", options.sampling.*kMember); }};
}

constexpr std::array kSettings = {
    OfSampling<&SamplingOptions::temperature>("temp", "0 takes the most likely token"),
    OfSampling<&SamplingOptions::top_k>("top-k", "keep the K most likely; 0: all"),
    OfSampling<&SamplingOptions::top_p>("top-p", "keep the most likely up to this probability"),
    OfSampling<&SamplingOptions::min_p>("min-p", "keep what has this share of the best"),
    OfSampling<&SamplingOptions::repetition_penalty>("repetition-penalty", "1: none"),
    OfSampling<&SamplingOptions::seed>("seed", "same seed and conversation, same answer"),
    Setting{"tokens", "of an answer, at most",
            [](GenerateOptions& options, const std::string& value) {
              options.max_tokens = ParseAs<int64_t>(value);
              if (options.max_tokens < 1) {
                throw Error(ErrorCode::kInvalidArgument, "value", "tokens", "at least 1", value);
              }
            },
            [](const GenerateOptions& options) { return fmt::format("{}", options.max_tokens); }},
};

nlohmann::ordered_json MessagesJson(const Conversation& conversation) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!conversation.system().empty()) {
    messages.push_back({{"role", "system"}, {"content", conversation.system()}});
  }
  for (const ChatMessage& turn : conversation.turns()) {
    messages.push_back({{"role", turn.role}, {"content", turn.content}});
  }
  return messages;
}

}  // namespace

struct ChatCommands::Command {
  const char* name;
  const char* argument;  // shown in the help; empty: it takes none
  const char* what;
  void (ChatCommands::*run)(const std::string& rest);  // null: leaves the chat
};

const ChatCommands::Command* ChatCommands::Commands(size_t& count) {
  static constexpr std::array kCommands = {
      Command{"help", "", "this list", &ChatCommands::Help},
      Command{"system", "[TEXT]", "begin anew with this system message; without TEXT show it",
              &ChatCommands::System},
      Command{"regenerate", "", "another answer to the last question", &ChatCommands::Regenerate},
      Command{"undo", "", "forget the last question and its answer", &ChatCommands::Undo},
      Command{"save", "FILE", "write the conversation, as JSON", &ChatCommands::Save},
      Command{"load", "FILE", "go on with a conversation that was saved", &ChatCommands::Load},
      Command{"set", "[NAME VALUE]", "change how tokens are chosen; alone: show how",
              &ChatCommands::Set},
      Command{"stats", "", "speeds, context and memory", &ChatCommands::Stats},
      Command{"quit", "", "leave (Ctrl-D does the same)", nullptr},
      Command{"bye", "", "leave", nullptr},
  };
  count = kCommands.size();
  return kCommands.data();
}

const ChatCommands::Command* ChatCommands::Find(std::string_view name) {
  size_t count = 0;
  const Command* commands = Commands(count);
  for (size_t i = 0; i < count; ++i) {
    if (name == commands[i].name) return &commands[i];
  }
  return nullptr;
}

ChatCommands::ChatCommands(Conversation& conversation, std::function<void()> regenerate)
    : conversation_(conversation), regenerate_(std::move(regenerate)) {}

bool ChatCommands::IsCommand(std::string_view message) {
  return message.size() > 1 && message[0] == '/' && message[1] >= 'a' && message[1] <= 'z';
}

bool ChatCommands::Run(std::string_view command) {
  const size_t end = command.find_first_of(" \t\n");
  const std::string_view name = command.substr(1, end == command.npos ? end : end - 1);
  const std::string rest = end == command.npos ? "" : Trimmed(command.substr(end));
  const Command* found = Find(name);
  if (found == nullptr) {
    PrintSentence(fmt::format(
        "there is no command '/{}'; /help lists them (a space before the '/' makes it a message)",
        name));
    return true;
  }
  if (found->argument[0] == '\0' && !rest.empty()) {
    PrintSentence(fmt::format("/{} takes nothing after it, found '{}'", name, rest));
    return true;
  }
  if (found->run == nullptr) return false;
  try {
    (this->*found->run)(rest);
  } catch (const Error& error) {
    const std::string option = OptionName(error);
    PrintSentence(option.empty() ? fmt::format("/{}: {}", name, error.what())
                                 : fmt::format("/{}: {}: {}", name, option, error.problem()));
  }
  return true;
}

void ChatCommands::Help(const std::string&) {
  size_t count = 0;
  const Command* commands = Commands(count);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const std::string usage = fmt::format("/{} {}", commands[i].name, commands[i].argument);
    text += fmt::format("  {:<20} {}\n", usage, commands[i].what);
  }
  PrintNotice(text +
              "A line that begins with \"\"\" begins a message of several lines, which ends with "
              "\"\"\".\nCtrl-C stops an answer.\n");
}

void ChatCommands::System(const std::string& rest) {
  if (rest.empty()) {
    PrintNotice(conversation_.system().empty() ? "there is no system message\n"
                                               : conversation_.system() + "\n");
    return;
  }
  conversation_.Restart(rest);
  PrintNotice("a new conversation with this system message\n");
}

void ChatCommands::Regenerate(const std::string&) {
  // The same seed would give the same answer.
  ++conversation_.generate().sampling.seed;
  regenerate_();
}

void ChatCommands::Undo(const std::string&) {
  PrintNotice(conversation_.Undo() ? "the last question is forgotten\n"
                                   : "there is nothing to undo\n");
}

void ChatCommands::Save(const std::string& rest) {
  if (rest.empty()) throw Error(ErrorCode::kInvalidArgument, "FILE", "give the name of a file");
  WriteFileAtomically(rest, DumpJson({{"messages", MessagesJson(conversation_)}}) + "\n");
  PrintNotice(fmt::format("{} messages written to {}\n", conversation_.turns().size(), rest));
}

void ChatCommands::Load(const std::string& rest) {
  if (rest.empty()) throw Error(ErrorCode::kInvalidArgument, "FILE", "give the name of a file");
  const nlohmann::json json = nlohmann::json::parse(ReadTextFile(rest), nullptr, false);
  if (json.is_discarded()) throw Error(ErrorCode::kCorrupt, rest, "it is not JSON");
  JsonObject document(json, rest, ErrorCode::kCorrupt);
  std::string system;
  std::vector<ChatMessage> turns;
  document.ForEach("messages", kMostMessages, [&](JsonObject& message) {
    const std::string role = message.OneOf("role", {"system", "user", "assistant"});
    std::string content = message.Text("content", kMostMessageBytes);
    if (role == "system" && turns.empty() && system.empty()) {
      system = std::move(content);
    } else {
      turns.push_back({role, std::move(content)});
    }
  });
  conversation_.Replace(std::move(system), std::move(turns));
  PrintNotice(fmt::format("going on after {} messages\n", conversation_.turns().size()));
}

void ChatCommands::Set(const std::string& rest) {
  GenerateOptions& options = conversation_.generate();
  if (rest.empty()) {
    for (const Setting& setting : kSettings) {
      PrintNotice(
          fmt::format("  {:<19} {:<12} {}\n", setting.name, setting.get(options), setting.what));
    }
    return;
  }
  const size_t end = rest.find_first_of(" \t=");
  const std::string name = rest.substr(0, end);
  const std::string value = end == rest.npos ? "" : Trimmed(rest.substr(end + 1));
  for (const Setting& setting : kSettings) {
    if (name != setting.name) continue;
    GenerateOptions changed = options;
    setting.set(changed, value);
    ValidateSampling(changed.sampling);
    options = changed;
    PrintNotice(fmt::format("{} {}\n", setting.name, setting.get(options)));
    return;
  }
  throw Error(ErrorCode::kInvalidArgument, "NAME",
              "there is no '" + name + "'; /set alone lists what there is");
}

void ChatCommands::Stats(const std::string&) {
  PrintNotice(fmt::format(
      "context {} of {} tokens, {} messages\nlast answer: {} tokens read in {:.0f} ms ({:.1f} "
      "tok/s), {} written in {:.0f} ms ({:.1f} tok/s)\nmemory\n{}",
      conversation_.context_used(), conversation_.engine().context(), conversation_.turns().size(),
      last_.prefill.tokens, last_.prefill.ms, last_.prefill.TokensPerSecond(), last_.decode.tokens,
      last_.decode.ms, last_.decode.TokensPerSecond(), LedgerText(conversation_.engine())));
}

}  // namespace hearth::cli
