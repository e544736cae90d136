#include "text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr char kTemplateKey[] = "tokenizer.chat_template";
constexpr char kToolUseKey[] = "tokenizer.chat_template.tool_use";

using Json = nlohmann::ordered_json;

// What a user types may be no UTF-8; JSON must be.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

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
  return chat;
}

ChatTemplate ChatTemplate::BuiltIn(ChatFormat format) {
  ChatTemplate chat;
  chat.format_ = format;
  return chat;
}

std::string ChatTemplate::Describe() const {
  return own_ ? "its own template" : std::string(ChatFormatName(*format_)) + " format";
}

std::vector<ChatPiece> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                            bool add_generation_prompt) const {
  if (!own_) return RenderChat(*format_, messages, add_generation_prompt);
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  jinja::Context context;
  context.SetJson("messages", Dump(list));
  context.SetBool("add_generation_prompt", add_generation_prompt);
  return RenderContext(std::move(context));
}

std::vector<ChatPiece> ChatTemplate::RenderJson(std::string_view request) const {
  if (own_) return RenderContext(jinja::Context::FromJson(request, "request"));
  const Json json = Json::parse(request, nullptr, false);
  if (!json.is_object()) {
    throw Error(ErrorCode::kInvalidArgument, "request", "is not a JSON object");
  }
  const Json prompt = json.value("add_generation_prompt", Json(false));
  return RenderChat(*format_, PlainMessages(json), prompt.is_boolean() && prompt.get<bool>());
}

std::vector<ChatPiece> ChatTemplate::RenderContext(jinja::Context context) const {
  for (const char* name : {"tools", "documents"}) {
    if (!context.Has(name)) context.SetJson(name, "null");
  }
  if (!context.Has("add_generation_prompt")) context.SetBool("add_generation_prompt", false);
  special_.AddTo(context);
  const bool has_tools = context.IsTrue("tools");
  return (has_tools && tool_use_ ? *tool_use_ : *own_).Render(context);
}

std::vector<std::string> ChatTemplate::StopStrings() const {
  return format_ ? ChatStopStrings(*format_) : std::vector<std::string>();
}

}  // namespace hearth
