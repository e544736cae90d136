#include "serve/chat_messages.h"

#include <fmt/format.h>

#include <string>

#include "serve/tool_requests.h"

namespace hearth::serve {
namespace {

constexpr size_t kMostMessages = 4096;
constexpr char kContent[] = "a string or a list of text parts";

// What a part of a content says. An assistant's refusal is what it said.
std::string TakePart(const Json& value, const std::string& path) {
  Fields part(value, path);
  const std::string type = part.TakeString("type").value_or("");
  if (type != "text" && type != "refusal") {
    part.Fail("type", "\"text\": nothing else can be read");
  }
  const auto words = part.TakeString(type);
  if (!words) part.Fail(type, "a string");
  return *words;
}

// A string, or the parts of one. may_be_missing: an assistant need not have said anything.
std::string TakeContent(Fields& fields, bool may_be_missing) {
  const Json* content = fields.Take("content");
  if (content == nullptr && may_be_missing) return "";
  if (content != nullptr && content->is_string()) return content->get<std::string>();
  if (content == nullptr || !content->is_array()) fields.Fail("content", kContent);
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    text += TakePart((*content)[i], fmt::format("{}[{}]", fields.PathOf("content"), i));
  }
  return text;
}

// What a server told apart from an answer. Others write there what they like.
std::string TakeReasoning(Fields& fields) {
  const Json* reasoning = fields.Take("reasoning_content");
  return reasoning != nullptr && reasoning->is_string() ? reasoning->get<std::string>() : "";
}

api::ChatMessage TakeMessage(Fields& fields) {
  api::ChatMessage message;
  message.role = fields.TakeString("role").value_or("");
  if (message.role == "developer") message.role = "system";
  const std::string& role = message.role;
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    fields.Fail("role", "system, developer, user, assistant or tool");
  }
  if (role == "assistant") {
    message.tool_calls = TakeToolCalls(fields);
    fields.Refuse("function_call", "it is of an older interface: use tool_calls");
    message.reasoning = TakeReasoning(fields);
  }
  if (role == "tool") {
    message.tool_call_id = fields.TakeString("tool_call_id").value_or("");
    if (message.tool_call_id.empty()) fields.Fail("tool_call_id", "the id of a call");
  }
  message.content = TakeContent(fields, role == "assistant");
  return message;
}

}  // namespace

std::vector<api::ChatMessage> TakeMessages(Fields& fields) {
  const Json* messages = fields.Take("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > kMostMessages) {
    fields.Fail("messages", fmt::format("a list of 1 to {} messages", kMostMessages));
  }
  std::vector<api::ChatMessage> list;
  for (size_t i = 0; i < messages->size(); ++i) {
    Fields message((*messages)[i], fmt::format("messages[{}]", i));
    list.push_back(TakeMessage(message));
  }
  CheckToolResults(list);
  return list;
}

}  // namespace hearth::serve
