#include "serve/tool_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "serve/request_error.h"

namespace hearth::serve {
namespace {

constexpr size_t kMostTools = 128;
constexpr size_t kMostCalls = 128;
constexpr size_t kLongestId = 256;

std::string TakeFunctionName(Fields& fields) {
  auto name = fields.TakeString("name");
  if (!name || !api::IsFunctionName(*name)) {
    fields.Fail("name", "1 to 64 letters, digits, '_' and '-'");
  }
  return *name;
}

// The object of a field that there must be.
const Json& TakeObject(Fields& fields, const std::string& name) {
  const Json* value = fields.Take(name);
  if (value == nullptr || !value->is_object()) fields.Fail(name, "an object");
  return *value;
}

void TakeFunctionType(Fields& fields) {
  if (fields.TakeString("type") != "function") {
    fields.Fail("type", "\"function\": there are no others");
  }
}

api::Tool TakeTool(const Json& value, size_t index) {
  Fields outer(value, fmt::format("tools[{}]", index));
  TakeFunctionType(outer);
  Fields function(TakeObject(outer, "function"), outer.PathOf("function"));
  outer.RefuseRest();
  api::Tool tool;
  tool.name = TakeFunctionName(function);
  tool.description = function.TakeString("description").value_or("");
  if (const Json* parameters = function.Take("parameters")) {
    if (!parameters->is_object()) function.Fail("parameters", "a JSON Schema of an object");
    tool.parameters = parameters->dump();
  }
  tool.strict = function.TakeBool("strict").value_or(false);
  function.RefuseRest();
  return tool;
}

std::vector<api::Tool> TakeToolList(Fields& fields) {
  const Json* list = fields.Take("tools");
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() > kMostTools) {
    fields.Fail("tools", fmt::format("a list of up to {} tools", kMostTools));
  }
  std::vector<api::Tool> tools;
  std::set<std::string> names;
  for (size_t i = 0; i < list->size(); ++i) {
    tools.push_back(TakeTool((*list)[i], i));
    if (names.insert(tools.back().name).second) continue;
    fields.Fail(fmt::format("tools[{}].function.name", i), "a name that no other tool has");
  }
  return tools;
}

// Whether anything may be called.
bool TakeToolChoice(Fields& fields, api::ToolOptions& options) {
  const Json* choice = fields.Take("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  if (options.tools.empty()) fields.Fail("tool_choice", "tools in the same request");
  options.must_call = true;
  if (*choice == "required") return true;
  if (!choice->is_object()) {
    fields.Fail("tool_choice",
                "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                "{\"name\": ...}}");
  }
  Fields outer(*choice, "tool_choice");
  TakeFunctionType(outer);
  Fields function(TakeObject(outer, "function"), outer.PathOf("function"));
  outer.RefuseRest();
  options.function = TakeFunctionName(function);
  function.RefuseRest();
  const bool is_known =
      std::any_of(options.tools.begin(), options.tools.end(),
                  [&](const api::Tool& tool) { return tool.name == options.function; });
  if (!is_known) function.Fail("name", "the name of one of the tools");
  return true;
}

}  // namespace

api::ToolOptions TakeTools(Fields& fields) {
  api::ToolOptions options;
  options.tools = TakeToolList(fields);
  const bool may_call = TakeToolChoice(fields, options);
  options.parallel = fields.TakeBool("parallel_tool_calls").value_or(true);
  if (!may_call) options.tools.clear();
  return options;
}

std::vector<api::ToolCall> TakeToolCalls(Fields& message) {
  const Json* list = message.Take("tool_calls");
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() > kMostCalls) {
    message.Fail("tool_calls", fmt::format("a list of up to {} calls", kMostCalls));
  }
  std::vector<api::ToolCall> calls;
  for (size_t i = 0; i < list->size(); ++i) {
    Fields outer((*list)[i], fmt::format("{}[{}]", message.PathOf("tool_calls"), i));
    api::ToolCall& call = calls.emplace_back();
    call.id = outer.TakeString("id").value_or("");
    if (call.id.empty() || call.id.size() > kLongestId) {
      outer.Fail("id", fmt::format("a text of 1 to {} bytes", kLongestId));
    }
    TakeFunctionType(outer);
    Fields function(TakeObject(outer, "function"), outer.PathOf("function"));
    call.name = TakeFunctionName(function);
    const auto arguments = function.TakeString("arguments");
    if (!arguments) function.Fail("arguments", "a string of JSON");
    call.arguments = *arguments;
  }
  return calls;
}

void CheckToolResults(const std::vector<api::ChatMessage>& messages, const RequestNames& names,
                      std::string_view id) {
  std::set<std::string> called;
  for (size_t i = 0; i < messages.size(); ++i) {
    for (const api::ToolCall& call : messages[i].tool_calls) called.insert(call.id);
    if (messages[i].role != "tool" || called.count(messages[i].tool_call_id) > 0) continue;
    const std::string found = Printable(messages[i].tool_call_id);
    if (!names.has_same_messages) {
      throw RequestError(
          Status::kBadRequest,
          fmt::format(
              "{}: expected the {} of a result to be the id of a call before it, found '{}'",
              names.messages, id, found),
          names.messages, "invalid_value");
    }
    const std::string param = fmt::format("{}[{}].{}", names.messages, i, id);
    throw RequestError(
        Status::kBadRequest,
        fmt::format("{}: expected the id of a call in a message before, found '{}'", param, found),
        param, "invalid_value");
  }
}

std::string NewCallId() {
  constexpr char kLetters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLength = 24;
  std::random_device device;
  std::uniform_int_distribution<size_t> letter(0, sizeof(kLetters) - 2);
  std::string id = "call_";
  for (size_t i = 0; i < kLength; ++i) id += kLetters[letter(device)];
  return id;
}

}  // namespace hearth::serve
