#include "serve/doors/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/doors/adapter_requests.h"
#include "serve/json_fields.h"
#include "serve/tool_requests.h"

namespace hearth::serve {
namespace {

constexpr size_t kMostMessages = 4096;
constexpr size_t kMostTools = 128;
constexpr size_t kMostStops = 16;
constexpr size_t kLongestStop = 1024;
constexpr int64_t kMostTokens = int64_t{1} << 31;

// Calls visit(block, type) for every block of a content that is a list; a text is one block.
template <typename Visit>
void ForEachBlock(Fields& fields, const std::string& name, std::string& text, Visit&& visit) {
  const Json* content = fields.Take(name);
  if (content == nullptr) fields.Fail(name, "a text or a list of blocks");
  if (content->is_string()) {
    text += content->get<std::string>();
    return;
  }
  if (!content->is_array()) fields.Fail(name, "a text or a list of blocks");
  for (size_t i = 0; i < content->size(); ++i) {
    Fields block((*content)[i], fmt::format("{}[{}]", fields.PathOf(name), i));
    const std::string type = block.TakeString("type").value_or("");
    if (type == "text") {
      const auto words = block.TakeString("text");
      if (!words) block.Fail("text", "a string");
      text += *words;
    } else {
      visit(block, type);
    }
  }
}

[[noreturn]] void RefuseBlock(Fields& block, const std::string& expected) {
  block.Fail("type", expected + ": this model reads text only");
}

std::string TakeText(Fields& fields, const std::string& name) {
  std::string text;
  ForEachBlock(fields, name, text,
               [](Fields& block, const std::string&) { RefuseBlock(block, "\"text\""); });
  return text;
}

std::string TakeId(Fields& fields, const std::string& name) {
  auto id = fields.TakeString(name);
  if (!id || id->empty()) fields.Fail(name, "the id of a call");
  return *std::move(id);
}

// What errors name; TakeFormat adds the format that is given.
RequestNames NamesOfMessages() {
  return {.prompt = "messages", .json_schema = "output_format", .has_same_messages = false};
}

// Results of tools come before what the user says beside them.
void TakeUserMessage(Fields& message, std::vector<api::ChatMessage>& messages) {
  std::string text;
  bool has_results = false;
  ForEachBlock(message, "content", text, [&](Fields& block, const std::string& type) {
    if (type != "tool_result") RefuseBlock(block, "text or tool_result");
    api::ChatMessage result = {.role = "tool", .content = ""};
    result.tool_call_id = TakeId(block, "tool_use_id");
    if (block.Take("content") != nullptr) result.content = TakeText(block, "content");
    if (block.TakeBool("is_error").value_or(false)) result.content = "Error: " + result.content;
    messages.push_back(std::move(result));
    has_results = true;
  });
  if (!text.empty() || !has_results) messages.push_back({.role = "user", .content = text});
}

void TakeAssistantMessage(Fields& message, std::vector<api::ChatMessage>& messages) {
  api::ChatMessage answer = {.role = "assistant", .content = ""};
  ForEachBlock(message, "content", answer.content, [&](Fields& block, const std::string& type) {
    if (type == "redacted_thinking") return;
    if (type == "thinking") {
      if (!answer.reasoning.empty()) answer.reasoning += "\n\n";
      answer.reasoning += block.TakeString("thinking").value_or("");
      return;
    }
    if (type != "tool_use") RefuseBlock(block, "text, thinking or tool_use");
    api::ToolCall& call = answer.tool_calls.emplace_back();
    call.id = TakeId(block, "id");
    call.name = block.TakeString("name").value_or("");
    if (!api::IsFunctionName(call.name)) {
      block.Fail("name", "1 to 64 letters, digits, '_' and '-'");
    }
    const Json* input = block.Take("input");
    if (input != nullptr && !input->is_object()) block.Fail("input", "an object");
    call.arguments = input == nullptr ? "{}" : input->dump();
  });
  messages.push_back(std::move(answer));
}

std::vector<api::ChatMessage> TakeConversation(Fields& fields) {
  std::vector<api::ChatMessage> messages;
  if (fields.Take("system") != nullptr) {
    std::string system = TakeText(fields, "system");
    if (!system.empty()) messages.push_back({.role = "system", .content = std::move(system)});
  }
  const Json* list = fields.Take("messages");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMostMessages) {
    fields.Fail("messages", fmt::format("a list of 1 to {} messages", kMostMessages));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    Fields message((*list)[i], fmt::format("messages[{}]", i));
    const std::string role = message.TakeString("role").value_or("");
    if (role == "user") {
      TakeUserMessage(message, messages);
    } else if (role == "assistant") {
      TakeAssistantMessage(message, messages);
    } else if (role == "system") {
      messages.push_back({.role = "system", .content = TakeText(message, "content")});
    } else {
      message.Fail("role", "user, assistant or system");
    }
  }
  CheckToolResults(messages, NamesOfMessages(), "tool_use_id");
  return messages;
}

api::Tool TakeTool(Fields& fields) {
  const std::string type = fields.TakeString("type").value_or("custom");
  if (type != "custom") {
    fields.Fail("type", "\"custom\": tools that a server runs are not here");
  }
  api::Tool tool;
  tool.name = fields.TakeString("name").value_or("");
  if (!api::IsFunctionName(tool.name)) {
    fields.Fail("name", "1 to 64 letters, digits, '_' and '-'");
  }
  tool.description = fields.TakeString("description").value_or("");
  const Json* schema = fields.Take("input_schema");
  if (schema == nullptr || !schema->is_object()) {
    fields.Fail("input_schema", "a JSON Schema of an object");
  }
  tool.parameters = schema->dump();
  tool.strict = fields.TakeBool("strict").value_or(false);
  return tool;
}

void TakeToolChoice(Fields& fields, api::ToolOptions& tools) {
  const Json* value = fields.Take("tool_choice");
  if (value == nullptr) return;
  Fields choice(*value, "tool_choice");
  const std::string type = choice.TakeString("type").value_or("");
  tools.parallel = !choice.TakeBool("disable_parallel_tool_use").value_or(false);
  if (type == "none") {
    tools.tools.clear();
  } else if (type == "any" || type == "tool") {
    if (tools.tools.empty()) fields.Fail("tool_choice", "tools in the same request");
    tools.must_call = true;
    if (type == "any") return;
    tools.function = choice.TakeString("name").value_or("");
    const bool is_known =
        std::any_of(tools.tools.begin(), tools.tools.end(),
                    [&](const api::Tool& tool) { return tool.name == tools.function; });
    if (!is_known) choice.Fail("name", "the name of one of the tools");
  } else if (type != "auto") {
    choice.Fail("type", "auto, any, tool or none");
  }
}

api::ToolOptions TakeMessagesTools(Fields& fields) {
  api::ToolOptions tools;
  if (const Json* list = fields.Take("tools")) {
    if (!list->is_array() || list->size() > kMostTools) {
      fields.Fail("tools", fmt::format("a list of up to {} tools", kMostTools));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      Fields tool((*list)[i], fmt::format("tools[{}]", i));
      tools.tools.push_back(TakeTool(tool));
    }
  }
  TakeToolChoice(fields, tools);
  return tools;
}

// As api::GenerateRequest::json_schema, of "output_format" and "output_config.format".
void TakeFormat(Fields& fields, const std::string& name, GenerationSettings& settings) {
  const Json* value = fields.Take(name);
  if (value == nullptr) return;
  Fields format(*value, fields.PathOf(name));
  if (format.TakeString("type") != "json_schema") format.Fail("type", "\"json_schema\"");
  const Json* schema = format.Take("schema");
  if (schema == nullptr || !schema->is_object()) format.Fail("schema", "a JSON Schema");
  settings.json_schema = schema->dump();
  settings.names.json_schema = fields.PathOf(name);
}

void TakeStops(Fields& fields, std::vector<std::string>& stops) {
  const Json* list = fields.Take("stop_sequences");
  if (list == nullptr) return;
  const auto fail = [&] {
    fields.Fail("stop_sequences",
                fmt::format("up to {} texts of 1 to {} bytes", kMostStops, kLongestStop));
  };
  if (!list->is_array() || list->size() > kMostStops) fail();
  for (const Json& stop : *list) {
    if (!stop.is_string()) fail();
    stops.push_back(stop.get<std::string>());
    if (stops.back().empty() || stops.back().size() > kLongestStop) fail();
  }
}

// Whether the model is to think first, for templates that can be told.
std::string TakeThinking(Fields& fields) {
  const Json* value = fields.Take("thinking");
  if (value == nullptr) return "";
  Fields thinking(*value, "thinking");
  const std::string type = thinking.TakeString("type").value_or("");
  if (type == "disabled") return R"({"enable_thinking":false})";
  if (type == "enabled" || type == "adaptive") return R"({"enable_thinking":true})";
  thinking.Fail("type", "enabled, adaptive or disabled");
}

GenerationSettings TakeMessagesSettings(Fields& fields, bool counts_only) {
  GenerationSettings settings;
  settings.adapters = TakeAdapters(fields);
  settings.names = NamesOfMessages();
  settings.model = fields.TakeString("model").value_or("");
  settings.max_tokens = fields.TakeInteger("max_tokens", 1, kMostTokens);
  if (!settings.max_tokens && !counts_only) fields.Fail("max_tokens", "a whole number");
  const auto take = [&](const char* name, double high, double otherwise) {
    return static_cast<float>(fields.TakeNumber(name, 0, high).value_or(otherwise));
  };
  settings.sampling.temperature = take("temperature", 1, 1);
  settings.sampling.top_p = take("top_p", 1, 1);
  settings.sampling.top_k =
      static_cast<int32_t>(fields.TakeInteger("top_k", 0, 1'000'000).value_or(0));
  settings.sampling.min_p = 0;
  TakeStops(fields, settings.stop);
  settings.stream = fields.TakeBool("stream").value_or(false);
  TakeFormat(fields, "output_format", settings);
  if (const Json* value = fields.Take("output_config")) {
    Fields output(*value, "output_config");
    TakeFormat(output, "format", settings);
  }
  return settings;
}

}  // namespace

ChatRequest ParseMessagesRequest(std::string_view body, bool counts_only, ParseOptions options) {
  const Json document = ParseBody(body);
  Fields fields(document);
  ChatRequest request;
  request.settings = TakeMessagesSettings(fields, counts_only);
  request.messages = TakeConversation(fields);
  request.tools = TakeMessagesTools(fields);
  request.variables = TakeThinking(fields);
  // They change nothing of the answer here.
  for (const char* name : {"metadata", "service_tier", "context_management", "betas", "container",
                           "inference_geo", "cache_control"}) {
    fields.Ignore(name);
  }
  fields.Refuse("mcp_servers", "servers of tools cannot be called from here", Json::array());
  if (!options.lenient) fields.RefuseRest();
  return request;
}

}  // namespace hearth::serve
