#include "serve/doors/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/doors/adapter_requests.h"

namespace hearth::serve {
namespace {

constexpr size_t kMostItems = 4096;
constexpr size_t kMostTools = 128;
constexpr int64_t kMostTokens = int64_t{1} << 31;
// The one argument of a custom tool's function.
constexpr char kCustomInput[] = "input";

// A text, or the texts of a list of parts.
std::string TakeParts(Fields& fields, const std::string& name) {
  const Json* content = fields.Take(name);
  if (content == nullptr) fields.Fail(name, "a text or a list of parts");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fields.Fail(name, "a text or a list of parts");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], fmt::format("{}[{}]", fields.PathOf(name), i));
    const std::string type = part.TakeString("type").value_or("");
    const bool is_refusal = type == "refusal";
    if (type != "input_text" && type != "output_text" && type != "text" && !is_refusal) {
      part.Fail("type", "input_text or output_text: this model reads text only");
    }
    const char* words_field = is_refusal ? "refusal" : "text";
    const auto words = part.TakeString(words_field);
    if (!words) part.Fail(words_field, "a string");
    text += *words;
  }
  return text;
}

std::string TakeName(Fields& fields) {
  std::string name = fields.TakeString("name").value_or("");
  if (!api::IsFunctionName(name)) fields.Fail("name", "1 to 64 letters, digits, '_' and '-'");
  return name;
}

std::string TakeCallId(Fields& fields) {
  std::string id = fields.TakeString("call_id").value_or("");
  if (id.empty()) fields.Fail("call_id", "the id of a call");
  return id;
}

std::string RequiredText(Fields& fields, const std::string& name) {
  auto text = fields.TakeString(name);
  if (!text) fields.Fail(name, "a string");
  return *std::move(text);
}

// Calls that follow each other are of one answer, as is the text right before them.
api::ChatMessage& AnswerFor(std::vector<api::ChatMessage>& messages) {
  if (messages.empty() || messages.back().role != "assistant") {
    messages.push_back({.role = "assistant", .content = ""});
  }
  return messages.back();
}

// What an answer thought; others encrypt it.
std::string TakeReasoning(Fields& item) {
  std::string text;
  const Json* content = item.Take("content");
  if (content == nullptr || !content->is_array()) return text;
  for (const Json& part : *content) {
    if (!part.is_object() || part.value("type", Json()) != "reasoning_text") continue;
    const auto words = part.find("text");
    if (words == part.end() || !words->is_string()) continue;
    if (!text.empty()) text += "\n\n";
    text += words->get<std::string>();
  }
  return text;
}

void TakeMessageItem(Fields& item, std::vector<api::ChatMessage>& messages) {
  std::string role = item.TakeString("role").value_or("");
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant") {
    item.Fail("role", "user, assistant, system or developer");
  }
  messages.push_back({.role = std::move(role), .content = TakeParts(item, "content")});
}

// reasoning: what was thought before the item, of an assistant.
void TakeItem(Fields& item, std::vector<api::ChatMessage>& messages, std::string& reasoning) {
  const std::string type = item.TakeString("type").value_or("message");
  if (type == "message") {
    TakeMessageItem(item, messages);
  } else if (type == "function_call" || type == "custom_tool_call") {
    api::ToolCall call;
    call.id = TakeCallId(item);
    call.name = TakeName(item);
    call.arguments = type == "function_call"
                         ? RequiredText(item, "arguments")
                         : Json{{kCustomInput, RequiredText(item, "input")}}.dump();
    AnswerFor(messages).tool_calls.push_back(std::move(call));
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    api::ChatMessage result = {.role = "tool", .content = ""};
    result.tool_call_id = TakeCallId(item);
    result.content = TakeParts(item, "output");
    messages.push_back(std::move(result));
  } else if (type == "reasoning") {
    if (!reasoning.empty()) reasoning += "\n\n";
    reasoning += TakeReasoning(item);
    return;
  } else {
    item.Fail("type",
              "message, function_call, function_call_output, custom_tool_call, "
              "custom_tool_call_output or reasoning");
  }
  const std::string thoughts = std::exchange(reasoning, {});
  api::ChatMessage& last = messages.back();
  if (thoughts.empty() || last.role != "assistant") return;
  last.reasoning += last.reasoning.empty() ? thoughts : "\n\n" + thoughts;
}

std::vector<api::ChatMessage> TakeInput(Fields& fields) {
  const Json* input = fields.Take("input");
  if (input == nullptr) fields.Fail("input", "a text or a list of items");
  if (input->is_string()) return {{.role = "user", .content = input->get<std::string>()}};
  if (!input->is_array() || input->empty() || input->size() > kMostItems) {
    fields.Fail("input", fmt::format("a text or a list of 1 to {} items", kMostItems));
  }
  std::vector<api::ChatMessage> messages;
  std::string reasoning;
  for (size_t i = 0; i < input->size(); ++i) {
    Fields item((*input)[i], fmt::format("input[{}]", i));
    TakeItem(item, messages, reasoning);
  }
  return messages;
}

api::Tool TakeFunction(Fields& fields) {
  api::Tool tool;
  tool.name = TakeName(fields);
  tool.description = fields.TakeString("description").value_or("");
  if (const Json* parameters = fields.Take("parameters")) {
    if (!parameters->is_object()) fields.Fail("parameters", "a JSON Schema of an object");
    tool.parameters = parameters->dump();
  }
  tool.strict = fields.TakeBool("strict").value_or(false);
  return tool;
}

api::Tool TakeCustomTool(Fields& fields) {
  api::Tool tool;
  tool.name = TakeName(fields);
  tool.description = fields.TakeString("description").value_or("");
  if (const Json* value = fields.Take("format")) {
    Fields format(*value, fields.PathOf("format"));
    if (format.TakeString("type").value_or("text") == "grammar") {
      // Told, not enforced: the grammar is of another kind than those here.
      tool.description +=
          "\nThe input follows this grammar:\n" + format.TakeString("definition").value_or("");
    }
  }
  tool.parameters = Json{
      {"type", "object"},
      {"properties", {{kCustomInput, {{"type", "string"}}}}},
      {"required", {kCustomInput}},
      {"additionalProperties",
       false}}.dump();
  return tool;
}

void TakeToolList(Fields& fields, ResponsesRequest& request) {
  const Json* list = fields.Take("tools");
  if (list == nullptr) return;
  if (!list->is_array() || list->size() > kMostTools) {
    fields.Fail("tools", fmt::format("a list of up to {} tools", kMostTools));
  }
  for (size_t i = 0; i < list->size(); ++i) {
    Fields tool((*list)[i], fmt::format("tools[{}]", i));
    const std::string type = tool.TakeString("type").value_or("");
    if (type == "function") {
      request.chat.tools.tools.push_back(TakeFunction(tool));
    } else if (type == "custom") {
      request.chat.tools.tools.push_back(TakeCustomTool(tool));
      request.custom_tools.insert(request.chat.tools.tools.back().name);
    } else {
      tool.Fail("type", "function or custom: tools that a server runs are not here");
    }
  }
}

void TakeChoice(Fields& fields, api::ToolOptions& tools) {
  const Json* choice = fields.Take("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") return tools.tools.clear();
  if (tools.tools.empty()) fields.Fail("tool_choice", "tools in the same request");
  tools.must_call = true;
  if (*choice == "required") return;
  Fields named(*choice, "tool_choice");
  const std::string type = named.TakeString("type").value_or("");
  if (type != "function" && type != "custom") named.Fail("type", "function or custom");
  tools.function = TakeName(named);
  const bool is_known =
      std::any_of(tools.tools.begin(), tools.tools.end(),
                  [&](const api::Tool& tool) { return tool.name == tools.function; });
  if (!is_known) named.Fail("name", "the name of one of the tools");
}

// As api::GenerateRequest::json_schema.
std::optional<std::string> TakeTextFormat(Fields& fields) {
  const Json* value = fields.Take("text");
  if (value == nullptr) return std::nullopt;
  Fields text(*value, "text");
  const Json* described = text.Take("format");
  if (described == nullptr) return std::nullopt;
  Fields format(*described, "text.format");
  const std::string type = format.TakeString("type").value_or("text");
  if (type == "text") return std::nullopt;
  if (type == "json_object") return "";
  if (type != "json_schema") format.Fail("type", "text, json_object or json_schema");
  const Json* schema = format.Take("schema");
  if (schema == nullptr || !schema->is_object()) format.Fail("schema", "a JSON Schema");
  return schema->dump();
}

GenerationSettings TakeResponsesSettings(Fields& fields) {
  GenerationSettings settings;
  settings.adapters = TakeAdapters(fields);
  settings.names = {.prompt = "input",
                    .messages = "input",
                    .json_schema = "text.format",
                    .has_same_messages = false};
  settings.model = fields.TakeString("model").value_or("");
  settings.max_tokens = fields.TakeInteger("max_output_tokens", 1, kMostTokens);
  const auto take = [&](const char* name, double high) {
    return static_cast<float>(fields.TakeNumber(name, 0, high).value_or(1));
  };
  settings.sampling.temperature = take("temperature", 2);
  settings.sampling.top_p = take("top_p", 1);
  settings.sampling.top_k = 0;
  settings.sampling.min_p = 0;
  settings.stream = fields.TakeBool("stream").value_or(false);
  settings.json_schema = TakeTextFormat(fields);
  return settings;
}

// How much the model is to think, for templates that can be told.
std::string TakeEffort(Fields& fields) {
  const Json* value = fields.Take("reasoning");
  if (value == nullptr) return "";
  Fields reasoning(*value, "reasoning");
  const auto effort = reasoning.TakeString("effort");
  return effort ? Json{{"reasoning_effort", *effort}}.dump() : "";
}

void RefuseOrIgnore(Fields& fields) {
  fields.Refuse("background", "answers are given at once", false);
  fields.Refuse("conversation", "conversations are kept by previous_response_id");
  fields.Refuse("prompt", "there are no stored prompts");
  fields.Refuse("top_logprobs", "scores are given by /v1/chat/completions", 0);
  // They change nothing of the answer here.
  for (const char* name : {"metadata", "user", "safety_identifier", "prompt_cache_key",
                           "prompt_cache_retention", "service_tier", "include", "stream_options",
                           "truncation", "max_tool_calls", "client_metadata"}) {
    fields.Ignore(name);
  }
}

}  // namespace

ResponsesRequest ParseResponsesRequest(std::string_view body, ParseOptions options) {
  const Json document = ParseBody(body);
  Fields fields(document);
  ResponsesRequest request;
  request.chat.settings = TakeResponsesSettings(fields);
  request.chat.messages = TakeInput(fields);
  request.chat.variables = TakeEffort(fields);
  TakeToolList(fields, request);
  TakeChoice(fields, request.chat.tools);
  request.chat.tools.parallel = fields.TakeBool("parallel_tool_calls").value_or(true);
  request.instructions = fields.TakeString("instructions").value_or("");
  request.previous_response = fields.TakeString("previous_response_id").value_or("");
  request.store = fields.TakeBool("store").value_or(true);
  RefuseOrIgnore(fields);
  if (!options.lenient) fields.RefuseRest();
  const std::pair<const char*, Json> repeated[] = {
      {"instructions", nullptr},
      {"max_output_tokens", nullptr},
      {"metadata", Json::object()},
      {"parallel_tool_calls", true},
      {"previous_response_id", nullptr},
      {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
      {"store", true},
      {"temperature", 1.0},
      {"text", {{"format", {{"type", "text"}}}}},
      {"tool_choice", "auto"},
      {"tools", Json::array()},
      {"top_p", 1.0},
      {"truncation", "disabled"},
      {"user", nullptr}};
  for (const auto& [name, otherwise] : repeated) {
    const Json* value = fields.Take(name);
    request.echoed[name] = value == nullptr ? otherwise : *value;
  }
  return request;
}

std::string CustomInput(const std::string& arguments) {
  const Json parsed = Json::parse(arguments, nullptr, false);
  if (!parsed.is_object() || !parsed.contains(kCustomInput)) return arguments;
  const Json& input = parsed[kCustomInput];
  return input.is_string() ? input.get<std::string>() : input.dump();
}

}  // namespace hearth::serve
