#include "text/tool_prompt.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "text/json_schema_parts.h"
#include "text/tool_syntax.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

bool IsJsonObject(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' && Json::accept(text);
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
    const bool as_mapping = style.parsed_arguments && IsJsonObject(call.arguments);
    json += json.empty() ? "[" : ", ";
    json += "{\"id\": " + JsonText(style.short_ids ? ShortId(call.id) : call.id) +
            ", \"type\": \"function\", \"function\": {\"name\": " + JsonText(call.name) +
            ", \"arguments\": " + (as_mapping ? call.arguments : JsonText(call.arguments)) + "}}";
  }
  return json + "]";
}

std::string CallsText(const ChatMessage& message) {
  const ToolSyntax& syntax = GenericToolSyntax();
  std::string text = message.content;
  for (const ToolCall& call : message.tool_calls) {
    if (!text.empty()) text += "\n";
    text += std::string(syntax.begin) + "\n{\"name\": " + JsonText(call.name) +
            ", \"arguments\": " + (call.arguments.empty() ? "{}" : call.arguments) + "}\n" +
            std::string(syntax.end);
  }
  return text;
}

}  // namespace

std::string ParametersOf(const ToolFunction& function) {
  return function.parameters.empty() ? R"({"type": "object", "properties": {}})"
                                     : function.parameters;
}

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
    const bool is_null = has_calls && message.content.empty() && style.null_content;
    json += is_null ? "null" : JsonText(message.content);
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
