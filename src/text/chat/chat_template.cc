#include "text/chat/chat_template.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/chat/harmony_prompt.h"

namespace hearth {
namespace {

constexpr size_t kMostRenderBytes = size_t{64} << 20;
// More than any template takes for two short messages: what is loaded has its memory reserved.
constexpr size_t kTrialBytes = size_t{4} << 20;
constexpr char kTemplateKey[] = "tokenizer.chat_template";
constexpr char kToolUseKey[] = "tokenizer.chat_template.tool_use";

using Json = nlohmann::ordered_json;

std::optional<jinja::Template> ReadTemplate(const GgufMetadata& metadata, const char* key) {
  const std::string* source = metadata.FindString(key);
  if (source == nullptr) return std::nullopt;
  return jinja::Template(*source, key);
}

// The messages of a request for a format that knows roles and texts only.
std::vector<ChatMessage> PlainMessages(const Json& request) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kUnsupported, "a built-in chat format", what);
  };
  if (request.contains("tools") && !request["tools"].empty()) refuse("it knows no tools");
  std::vector<ChatMessage> messages;
  for (const Json& message : request.value("messages", Json::array())) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string()) {
      refuse("every message needs a role and a content, both text");
    }
    messages.push_back({message["role"], message["content"]});
  }
  return messages;
}

std::string Joined(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.text;
  return text;
}

// What a template may ask for beside what is set here.
jinja::Context VariablesOf(std::string_view json) {
  constexpr char kWhere[] = "chat_template_kwargs";
  if (json.empty()) return {};
  jinja::Context context = jinja::Context::FromJson(json, kWhere);
  for (const char* name :
       {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (!context.Has(name)) continue;
    throw Error(ErrorCode::kInvalidArgument, Field{std::string(kWhere) + "." + name},
                "it is not for requests to set");
  }
  return context;
}

// What `render` returns, nothing where the template refuses.
template <typename Fn>
std::optional<std::string> Rendered(Fn&& render) {
  try {
    return Joined(render());
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

SpecialTexts SpecialTexts::Of(const Tokenizer& tokenizer) {
  SpecialTexts texts;
  const SpecialTokens& special = tokenizer.special();
  if (special.bos >= 0) texts.bos = tokenizer.VocabularyText(special.bos);
  if (special.eos >= 0) texts.eos = tokenizer.VocabularyText(special.eos);
  return texts;
}

void SpecialTexts::AddTo(jinja::Context& context) const {
  if (bos && !context.Has("bos_token")) context.SetTrustedText("bos_token", *bos);
  if (eos && !context.Has("eos_token")) context.SetTrustedText("eos_token", *eos);
}

std::optional<ChatTemplate> ChatTemplate::FromModel(const GgufMetadata& metadata,
                                                    const Tokenizer& tokenizer) {
  const std::string* source = metadata.FindString(kTemplateKey);
  if (source == nullptr) return std::nullopt;
  ChatTemplate chat;
  chat.own_ = ReadTemplate(metadata, kTemplateKey);
  chat.tool_use_ = ReadTemplate(metadata, kToolUseKey);
  chat.format_ = DetectChatFormat(*source);
  chat.special_ = SpecialTexts::Of(tokenizer);
  chat.thinking_ = DetectThinking(*source);
  chat.style_.has_channels = chat.has_channels();
  const std::string* for_tools = metadata.FindString(kToolUseKey);
  chat.syntax_ = DetectToolSyntax(for_tools != nullptr ? *for_tools : *source);
  jinja::MemoryMeter meter(kTrialBytes);
  const jinja::MeterScope scope(meter);
  if (chat.syntax_ != nullptr) chat.LearnToolStyle();
  chat.LearnSystemRole();
  return chat;
}

ChatTemplate ChatTemplate::BuiltIn(ChatFormat format) {
  ChatTemplate chat;
  chat.format_ = format;
  if (format == ChatFormat::kHarmony) {
    chat.thinking_ = HarmonyChannels();
    chat.syntax_ = &HarmonyToolSyntax();
    chat.knows_tools_ = true;
  }
  return chat;
}

std::string ChatTemplate::Describe() const {
  return own_ ? "its own template" : std::string(ChatFormatName(*format_)) + " format";
}

// Tries the template with small conversations: whether functions appear in what it writes, and in
// which form calls do.
void ChatTemplate::LearnToolStyle() {
  const std::vector<ToolFunction> functions = {{.name = "probe_function", .description = "probe"}};
  const std::vector<ToolFunction> none;
  const ChatMessage question = {"user", "probe_question"};
  const auto render = [&](const std::vector<ChatMessage>& messages,
                          const std::vector<ToolFunction>& given, const ToolMessageStyle& style) {
    return Rendered([&] { return RenderMessages(messages, {true, given, {}}, true, style); });
  };
  const auto with = render({question}, functions, style_);
  knows_tools_ = with && with != render({question}, none, style_) &&
                 with->find("probe_function") != std::string::npos;
  style_.short_ids = syntax_->short_ids;
  ChatMessage call = {"assistant", ""};
  call.tool_calls = {{"call_1", "probe_function", R"({"probe_key": "probe_value"})"}};
  const ChatMessage result = {"tool", "probe_result", {}, "call_1"};
  const auto writes_call = [&](const ToolMessageStyle& style) {
    const auto text = render({question, call, result}, functions, style);
    // Python's None, a mapping as Python prints it and JSON in JSON are mistakes of the style, not
    // of the template.
    return text && text->find("probe_value") != std::string::npos &&
           (!style.null_content || text->find("None") == std::string::npos) &&
           text->find("'probe_key'") == std::string::npos &&
           text->find("\\\"probe_value") == std::string::npos;
  };
  for (const bool parsed : {true, false}) {
    for (const bool null : {true, false}) {
      const ToolMessageStyle style = {parsed, null, style_.short_ids, style_.has_channels};
      if (!writes_call(style)) continue;
      style_ = style;
      return;
    }
  }
  knows_tools_ = false;  // it writes functions, but no calls
}

// Some templates refuse a system's message, others leave it out.
void ChatTemplate::LearnSystemRole() {
  const std::vector<ToolFunction> none;
  const ChatMessage question = {"user", "probe_question"};
  const auto render = [&](const std::vector<ChatMessage>& messages) {
    return Rendered([&] { return RenderMessages(messages, {true, none, {}}, false, style_); });
  };
  if (!render({question})) return;  // it refuses more than that
  const auto text = render({{"system", "probe_system"}, question});
  knows_system_ = text && text->find("probe_system") != std::string::npos;
}

std::vector<ChatPiece> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                            bool add_generation_prompt,
                                            const std::vector<ToolFunction>& functions,
                                            std::string_view variables,
                                            const jinja::MayHoldFn& may_hold) const {
  jinja::MemoryMeter meter(kMostRenderBytes, may_hold);
  const jinja::MeterScope scope(meter);
  try {
    return RenderMetered(messages, {add_generation_prompt, functions, variables});
  } catch (const jinja::MemoryRefused& refused) {
    throw Error(ErrorCode::kOutOfBudget, Field{"messages"}, refused.what());
  } catch (const jinja::Failure& failure) {
    throw Error(ErrorCode::kInvalidArgument, Field{"messages"}, failure.what());
  }
}

std::vector<ChatPiece> ChatTemplate::RenderMetered(const std::vector<ChatMessage>& messages,
                                                   const Rest& rest) const {
  if (!own_ && format_ == ChatFormat::kHarmony) {
    return RenderHarmonyChat(messages, rest.add_generation_prompt, rest.functions, rest.variables);
  }
  const bool has_tools = !rest.functions.empty() || MentionsTools(messages);
  return has_tools ? RenderTools(messages, rest) : RenderPlain(messages, rest);
}

std::vector<ChatPiece> ChatTemplate::RenderTools(const std::vector<ChatMessage>& messages,
                                                 const Rest& rest) const {
  if (knows_tools_) {
    return RenderKnownTools(has_channels() ? WithOneCallEach(messages) : messages, rest);
  }
  // Words that ask for calls in the text contradict the channels that the model knows.
  if (has_channels()) {
    throw Error(ErrorCode::kUnsupported, Field{"tools"},
                "this model's chat template does not write tools: choose the chat format harmony");
  }
  return RenderInWords(messages, rest);
}

std::vector<ChatPiece> ChatTemplate::RenderPlain(const std::vector<ChatMessage>& messages,
                                                 const Rest& rest) const {
  if (!own_) return RenderChat(*format_, messages, rest.add_generation_prompt);
  return RenderFolded(messages, rest, false);
}

std::vector<ChatPiece> ChatTemplate::RenderMessages(const std::vector<ChatMessage>& messages,
                                                    const Rest& rest, bool for_tools,
                                                    const ToolMessageStyle& style) const {
  jinja::Context context = VariablesOf(rest.variables);
  context.SetJson("messages", MessagesJson(messages, style));
  if (for_tools && !rest.functions.empty()) context.SetJson("tools", ToolsJson(rest.functions));
  context.SetBool("add_generation_prompt", rest.add_generation_prompt);
  return RenderContext(std::move(context), for_tools);
}

// What the system says, as the template takes it: as a message, as the first message only, or not
// at all.
std::vector<ChatPiece> ChatTemplate::RenderFolded(const std::vector<ChatMessage>& messages,
                                                  const Rest& rest, bool for_tools) const {
  const auto render = [&](const std::vector<ChatMessage>& list) {
    return RenderMessages(list, rest, for_tools, style_);
  };
  if (!knows_system_) return render(WithoutSystem(messages));
  const auto is_system = [](const ChatMessage& message) { return message.role == "system"; };
  const bool has_later =
      !messages.empty() && std::any_of(messages.begin() + 1, messages.end(), is_system);
  if (!has_later) return render(messages);
  std::exception_ptr refusal;
  try {
    return render(messages);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    refusal = std::current_exception();
  }
  std::vector<ChatMessage> folded = WithoutSystem({messages.begin() + 1, messages.end()});
  folded.insert(folded.begin(), messages.front());
  try {
    return render(folded);
  } catch (const Error&) {
    std::rethrow_exception(refusal);
  }
}

// A call that was cut off is shown as it is. Where a template cannot do that, it is to blame if the
// conversation works without its arguments.
std::vector<ChatPiece> ChatTemplate::RenderKnownTools(const std::vector<ChatMessage>& messages,
                                                      const Rest& rest) const {
  try {
    return RenderFolded(messages, rest, true);
  } catch (const Error& error) {
    const auto bad = FindBadArguments(messages);
    if (error.code() != ErrorCode::kInvalidArgument || !bad) throw;
    std::vector<ChatMessage> without = messages;
    for (ChatMessage& message : without) {
      for (ToolCall& call : message.tool_calls) call.arguments.clear();
    }
    if (!Rendered([&] { return RenderFolded(without, rest, true); })) throw;
    throw Error(ErrorCode::kInvalidArgument, Field{*bad},
                "expected a JSON object: this model's chat template takes no other arguments");
  }
}

// Some templates refuse a system's text, or leave it out: the user says it then.
std::vector<ChatPiece> ChatTemplate::RenderInWords(const std::vector<ChatMessage>& messages,
                                                   const Rest& rest) const {
  const std::string description = rest.functions.empty() ? "" : DescribeTools(rest.functions);
  const auto render = [&](DescriptionPlace place) {
    return RenderPlain(WithoutTools(messages, description, place), rest);
  };
  if (description.empty()) return render(DescriptionPlace::kSystem);
  const std::string first_line = description.substr(0, description.find('\n'));
  try {
    std::vector<ChatPiece> pieces = render(DescriptionPlace::kSystem);
    if (Joined(pieces).find(first_line) != std::string::npos) return pieces;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
  }
  return render(DescriptionPlace::kUser);
}

std::vector<ChatPiece> ChatTemplate::RenderJson(std::string_view request) const {
  if (own_) {
    jinja::Context context = jinja::Context::FromJson(request, "request");
    const bool has_tools = context.IsTrue("tools");
    return RenderContext(std::move(context), has_tools);
  }
  const Json json = Json::parse(request, nullptr, false);
  if (!json.is_object()) {
    throw Error(ErrorCode::kInvalidArgument, "request", "is not a JSON object");
  }
  const Json prompt = json.value("add_generation_prompt", Json(false));
  return RenderChat(*format_, PlainMessages(json), prompt.is_boolean() && prompt.get<bool>());
}

std::vector<ChatPiece> ChatTemplate::RenderContext(jinja::Context context, bool for_tools) const {
  for (const char* name : {"tools", "documents"}) {
    if (!context.Has(name)) context.SetJson(name, "null");
  }
  if (!context.Has("add_generation_prompt")) context.SetBool("add_generation_prompt", false);
  special_.AddTo(context);
  return (for_tools && tool_use_ ? *tool_use_ : *own_).Render(context);
}

std::vector<std::string> ChatTemplate::StopStrings() const {
  return format_ ? ChatStopStrings(*format_) : std::vector<std::string>();
}

}  // namespace hearth
