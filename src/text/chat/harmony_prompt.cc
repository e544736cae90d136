#include "text/chat/harmony_prompt.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/chat/piece_list.h"

namespace hearth {
namespace {

constexpr char kFinal[] = "final";
constexpr char kAnalysis[] = "analysis";
constexpr char kCommentary[] = "commentary";

std::string Lower(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

// Sections are paragraphs.
void AddSection(std::string& text, const std::string& section) {
  if (!text.empty()) text += "\n\n";
  text += section;
}

std::string ToolsSection(const std::vector<ToolNamespace>& tools) {
  std::string text = "# Tools";
  for (const ToolNamespace& space : tools) AddSection(text, DescribeNamespace(space));
  return text;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  char text[sizeof "2026-12-31"] = "";
  if (localtime_r(&now, &local) == nullptr) return "";
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", &local));
}

void AddMessage(const HarmonyMessage& message, std::string_view end, PieceList& pieces) {
  const bool is_tool = message.role == "tool";
  pieces.Marker(kHarmonyStart);
  pieces.Content(is_tool && !message.name.empty() ? message.name : message.role);
  if (!message.recipient.empty()) pieces.Content(" to=" + message.recipient);
  if (!message.channel.empty()) {
    pieces.Marker(kHarmonyChannel);
    pieces.Content(message.channel);
  }
  std::string_view type = message.content_type;
  if (!type.empty()) {
    pieces.Content(" ");
    if (type.substr(0, kHarmonyConstrain.size()) == kHarmonyConstrain) {
      pieces.Marker(kHarmonyConstrain);
      type.remove_prefix(kHarmonyConstrain.size());
    }
    pieces.Content(type);
  }
  pieces.Marker(kHarmonyMessage);
  pieces.Content(message.content);
  pieces.Marker(end);
}

bool IsAnswer(const HarmonyMessage& message) {
  return message.role == "assistant" && message.channel == kFinal;
}

// What a request sets of the first message.
HarmonySystem SystemOf(std::string_view variables) {
  HarmonySystem system;
  system.date = Today();
  if (variables.empty()) return system;
  const auto json = nlohmann::json::parse(variables, nullptr, false);
  const std::string where = "chat_template_kwargs";
  if (!json.is_object()) {
    throw Error(ErrorCode::kInvalidArgument, Field{where}, "expected a JSON object");
  }
  for (const auto& [name, member] : {std::pair("reasoning_effort", &system.reasoning_effort),
                                     std::pair("model_identity", &system.identity)}) {
    if (!json.contains(name)) continue;
    if (!json[name].is_string()) {
      throw Error(ErrorCode::kInvalidArgument, Field{where + "." + name}, "expected a text");
    }
    *member = json[name].get<std::string>();
  }
  return system;
}

// Turns the messages of a conversation into those of Harmony.
class HarmonyChat {
 public:
  explicit HarmonyChat(std::vector<HarmonyMessage> beginning) : messages_(std::move(beginning)) {}

  void Add(const ChatMessage& message) {
    if (message.role == "system") {
      Say("developer", "", HarmonyDeveloperText(message.content, {}));
    } else if (message.role == "user") {
      Say("user", "", message.content);
    } else if (message.role == "assistant") {
      AddAnswer(message);
    } else if (message.role == "tool") {
      AddResult(message);
    } else {
      throw Error(ErrorCode::kInvalidArgument, "chat format harmony", "role",
                  "system, user, assistant or tool", Printable(message.role));
    }
  }

  const std::vector<HarmonyMessage>& messages() const { return messages_; }

 private:
  HarmonyMessage& Say(const char* role, const char* channel, const std::string& content) {
    return messages_.emplace_back(
        HarmonyMessage{.role = role, .channel = channel, .content = content});
  }

  void AddAnswer(const ChatMessage& message) {
    if (!message.reasoning.empty()) Say("assistant", kAnalysis, message.reasoning);
    const bool calls = !message.tool_calls.empty();
    if (!calls) {
      Say("assistant", kFinal, message.content);
    } else if (!message.content.empty()) {
      Say("assistant", kCommentary, message.content);
    }
    for (const ToolCall& call : message.tool_calls) {
      const bool is_blank = call.arguments.find_first_not_of(" \t\r\n") == std::string::npos;
      HarmonyMessage& said = Say("assistant", kCommentary, is_blank ? "{}" : call.arguments);
      said.recipient = std::string(kHarmonyFunctions) + call.name;
      said.content_type = std::string(kHarmonyConstrain) + "json";
      names_[call.id] = last_name_ = call.name;
    }
  }

  void AddResult(const ChatMessage& message) {
    const auto named = names_.find(message.tool_call_id);
    const std::string name = named != names_.end() ? named->second : last_name_;
    if (name.empty()) {
      throw Error(ErrorCode::kInvalidArgument, Field{"messages"},
                  "a tool's result follows no call: give the assistant's message that called it");
    }
    HarmonyMessage& said = Say("tool", kCommentary, message.content);
    said.name = std::string(kHarmonyFunctions) + name;
    said.recipient = "assistant";
  }

  std::vector<HarmonyMessage> messages_;
  std::map<std::string, std::string> names_;  // of functions, by the id of the call
  std::string last_name_;
};

}  // namespace

std::string HarmonySystemText(const HarmonySystem& system) {
  std::string text = system.identity;
  if (!system.knowledge_cutoff.empty()) text += "\nKnowledge cutoff: " + system.knowledge_cutoff;
  if (!system.date.empty()) text += "\nCurrent date: " + system.date;
  if (!system.reasoning_effort.empty()) {
    AddSection(text, "Reasoning: " + Lower(system.reasoning_effort));
  }
  if (!system.tools.empty()) AddSection(text, ToolsSection(system.tools));
  AddSection(text,
             "# Valid channels: analysis, commentary, final. Channel must be included for every "
             "message.");
  if (system.has_functions) {
    text += "\nCalls to these tools must go to the commentary channel: 'functions'.";
  }
  return text;
}

std::string HarmonyDeveloperText(const std::string& instructions,
                                 const std::vector<ToolNamespace>& tools) {
  std::string text;
  if (!instructions.empty()) AddSection(text, "# Instructions\n\n" + instructions);
  if (!tools.empty()) AddSection(text, ToolsSection(tools));
  return text;
}

std::vector<ChatPiece> RenderHarmony(const std::vector<HarmonyMessage>& messages,
                                     HarmonyEnding ending) {
  const auto last_answer = std::find_if(messages.rbegin(), messages.rend(), IsAnswer).base();
  PieceList pieces;
  for (auto it = messages.begin(); it != messages.end(); ++it) {
    const bool is_thought = it->role == "assistant" && it->channel == kAnalysis;
    if (is_thought && it < last_answer) continue;
    const bool calls = it->role == "assistant" && !it->recipient.empty();
    const bool returns = ending == HarmonyEnding::kTraining && it + 1 == messages.end();
    AddMessage(*it,
               calls                      ? kHarmonyCall
               : returns && IsAnswer(*it) ? kHarmonyReturn
                                          : kHarmonyEnd,
               pieces);
  }
  if (ending == HarmonyEnding::kCompletion) {
    pieces.Marker(kHarmonyStart);
    pieces.Marker("assistant");
  }
  return pieces.Take();
}

std::vector<ChatPiece> RenderHarmonyChat(const std::vector<ChatMessage>& messages,
                                         bool add_generation_prompt,
                                         const std::vector<ToolFunction>& functions,
                                         std::string_view variables) {
  HarmonySystem system = SystemOf(variables);
  system.has_functions = !functions.empty();
  std::vector<HarmonyMessage> beginning = {
      {.role = "system", .content = HarmonySystemText(system)}};
  std::vector<ChatMessage> rest = WithOneCallEach(messages);
  std::string instructions;
  if (!rest.empty() && rest.front().role == "system") {
    instructions = rest.front().content;
    rest.erase(rest.begin());
  }
  std::vector<ToolNamespace> tools;
  if (!functions.empty()) tools.push_back({"functions", "", functions});
  const std::string developer = HarmonyDeveloperText(instructions, tools);
  if (!developer.empty()) beginning.push_back({.role = "developer", .content = developer});
  HarmonyChat chat(std::move(beginning));
  for (const ChatMessage& message : rest) chat.Add(message);
  return RenderHarmony(chat.messages(), add_generation_prompt ? HarmonyEnding::kCompletion
                                                              : HarmonyEnding::kConversation);
}

std::vector<ChatMessage> WithOneCallEach(const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    out.push_back(messages[i]);
    const std::vector<ToolCall>& calls = messages[i].tool_calls;
    if (calls.size() < 2) continue;
    out.pop_back();
    std::vector<ChatMessage> results;
    while (i + 1 < messages.size() && messages[i + 1].role == "tool") {
      results.push_back(messages[++i]);
    }
    const ChatMessage& caller = messages[i - results.size()];
    for (const ToolCall& call : calls) {
      ChatMessage one = {.role = caller.role, .content = "", .tool_calls = {call}};
      if (&call == &calls.front()) {
        one.content = caller.content;
        one.reasoning = caller.reasoning;
      }
      out.push_back(std::move(one));
      std::erase_if(results, [&](const ChatMessage& result) {
        if (result.tool_call_id != call.id) return false;
        out.push_back(result);
        return true;
      });
    }
    out.insert(out.end(), results.begin(), results.end());
  }
  return out;
}

}  // namespace hearth
