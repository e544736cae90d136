#include "text/chat/tool_prompt.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/grammar/json_schema_parts.h"
#include "text/tools/tool_syntax.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

bool IsJsonObject(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' && Json::accept(text);
}

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

std::string FunctionJson(const ToolFunction& function) {
  return "{\"name\": " + JsonText(function.name) +
         ", \"description\": " + JsonText(function.description) +
         ", \"parameters\": " + ParametersOf(function) + "}";
}

// The last letters and digits of an id, which are as random as all of it.
std::string ShortId(const std::string& id) {
  constexpr size_t kLength = 9;
  std::string letters;
  std::copy_if(id.begin(), id.end(), std::back_inserter(letters), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
  if (letters.size() > kLength) letters.erase(0, letters.size() - kLength);
  return std::string(kLength - letters.size(), '0') + letters;
}

std::string CallsJson(const std::vector<ToolCall>& calls, const ToolMessageStyle& style) {
  std::string json;
  for (const ToolCall& call : calls) {
    const std::string arguments = IsBlank(call.arguments) ? "{}" : call.arguments;
    const bool as_mapping = style.parsed_arguments && IsJsonObject(arguments);
    json += json.empty() ? "[" : ", ";
    json += "{\"id\": " + JsonText(style.short_ids ? ShortId(call.id) : call.id) +
            ", \"type\": \"function\", \"function\": {\"name\": " + JsonText(call.name) +
            ", \"arguments\": " + (as_mapping ? arguments : JsonText(arguments)) + "}}";
  }
  return json + "]";
}

// What an assistant thought; joins: with what it said.
std::string ThoughtsJson(const ChatMessage& message, bool joins, const ToolMessageStyle& style) {
  std::string text = message.reasoning;
  if (joins && !message.content.empty()) text += "\n\n" + message.content;
  return std::string(style.has_channels ? ", \"thinking\": " : ", \"reasoning_content\": ") +
         JsonText(text);
}

std::string CallsText(const ChatMessage& message) {
  const ToolSyntax& syntax = GenericToolSyntax();
  std::string text = message.content;
  for (const ToolCall& call : message.tool_calls) {
    const std::string arguments = IsBlank(call.arguments)        ? "{}"
                                  : Json::accept(call.arguments) ? call.arguments
                                                                 : JsonText(call.arguments);
    if (!text.empty()) text += "\n";
    text += std::string(syntax.begin) + "\n{\"name\": " + JsonText(call.name) +
            ", \"arguments\": " + arguments + "}\n" + std::string(syntax.end);
  }
  return text;
}

}  // namespace

bool MentionsTools(const std::vector<ChatMessage>& messages) {
  return std::any_of(messages.begin(), messages.end(), [](const ChatMessage& message) {
    return message.role == "tool" || !message.tool_calls.empty();
  });
}

std::string ToolsJson(const std::vector<ToolFunction>& functions) {
  std::string json;
  for (const ToolFunction& function : functions) {
    json += json.empty() ? "[" : ", ";
    json += "{\"type\": \"function\", \"function\": " + FunctionJson(function) + "}";
  }
  return json + "]";
}

std::string MessagesJson(const std::vector<ChatMessage>& messages, const ToolMessageStyle& style) {
  std::map<std::string, std::string> names;  // of the functions of calls
  std::string json;
  for (const ChatMessage& message : messages) {
    json += json.empty() ? "[" : ", ";
    json += "{\"role\": " + JsonText(message.role) + ", \"content\": ";
    const bool has_calls = !message.tool_calls.empty();
    const bool joins = style.has_channels && has_calls && !message.reasoning.empty();
    const std::string content = joins ? "" : message.content;
    const bool is_null = has_calls && content.empty() && style.null_content;
    json += is_null ? "null" : JsonText(content);
    if (!message.reasoning.empty()) json += ThoughtsJson(message, joins, style);
    if (has_calls) json += ", \"tool_calls\": " + CallsJson(message.tool_calls, style);
    for (const ToolCall& call : message.tool_calls) names[call.id] = call.name;
    if (message.role == "tool") {
      const std::string& id = message.tool_call_id;
      json += ", \"tool_call_id\": " + JsonText(style.short_ids ? ShortId(id) : id);
      const auto name = names.find(id);
      if (name != names.end()) json += ", \"name\": " + JsonText(name->second);
    }
    json += "}";
  }
  return json.empty() ? "[]" : json + "]";
}

std::optional<std::string> FindBadArguments(const std::vector<ChatMessage>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::vector<ToolCall>& calls = messages[i].tool_calls;
    for (size_t k = 0; k < calls.size(); ++k) {
      if (IsBlank(calls[k].arguments) || IsJsonObject(calls[k].arguments)) continue;
      return "messages[" + std::to_string(i) + "].tool_calls[" + std::to_string(k) +
             "].function.arguments";
    }
  }
  return std::nullopt;
}

std::vector<ChatMessage> WithoutSystem(const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> folded;
  std::string said;  // by the system, since the user's last message
  const auto say = [&said](const std::string& text) {
    said += (said.empty() || text.empty() ? "" : "\n\n") + text;
  };
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      say(message.content);
    } else {
      folded.push_back(message);
      if (message.role != "user" || said.empty()) continue;
      say(message.content);
      folded.back().content = std::exchange(said, {});
    }
  }
  if (said.empty()) return folded;
  if (folded.empty() || folded.back().role != "user") {
    folded.push_back({"user", said});
  } else {
    folded.back().content += "\n\n" + said;
  }
  return folded;
}

std::string DescribeTools(const std::vector<ToolFunction>& functions) {
  const ToolSyntax& syntax = GenericToolSyntax();
  std::string text = "You can call these functions:\n";
  for (const ToolFunction& function : functions) text += FunctionJson(function) + "\n";
  return text + "To call one, write\n" + std::string(syntax.begin) +
         "\n{\"name\": its name, \"arguments\": its arguments as JSON}\n" +
         std::string(syntax.end) +
         "\nResults come between <tool_response> and </tool_response>. Where no function helps, "
         "answer "
         "in words.";
}

std::vector<ChatMessage> WithoutTools(const std::vector<ChatMessage>& messages,
                                      const std::string& description, DescriptionPlace place) {
  std::vector<ChatMessage> plain;
  bool follows_result = false;
  for (const ChatMessage& message : messages) {
    const bool is_result = message.role == "tool";
    const std::string role = is_result ? "user" : message.role;
    const std::string text = is_result
                                 ? "<tool_response>\n" + message.content + "\n</tool_response>"
                                 : CallsText(message);
    if (follows_result && role == "user") {
      plain.back().content += "\n" + text;
    } else {
      plain.push_back({role, text});
    }
    follows_result = is_result;
  }
  if (description.empty()) return plain;
  if (place == DescriptionPlace::kSystem) {
    if (plain.empty() || plain.front().role != "system")
      plain.insert(plain.begin(), {"system", ""});
    std::string& text = plain.front().content;
    text += (text.empty() ? "" : "\n\n") + description;
    return plain;
  }
  const auto user = std::find_if(plain.begin(), plain.end(),
                                 [](const ChatMessage& message) { return message.role == "user"; });
  if (user == plain.end()) {
    plain.push_back({"user", description});
  } else {
    user->content = description + "\n\n" + user->content;
  }
  return plain;
}

}  // namespace hearth
