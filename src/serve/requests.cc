#include "serve/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "serve/json_fields.h"
#include "serve/request_error.h"
#include "serve/tool_requests.h"

namespace hearth::serve {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kLongestStop = 1024;
constexpr size_t kMostBiases = 1024;
constexpr size_t kMostMessages = 4096;
constexpr int64_t kMostTokens = int64_t{1} << 31;

// A token id, which a vocabulary may still not have.
std::optional<api::TokenId> ToTokenId(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX) return std::nullopt;
  const auto id = value.get<int64_t>();
  if (id < 0 || id > INT32_MAX) return std::nullopt;
  return static_cast<api::TokenId>(id);
}

std::optional<std::vector<api::TokenId>> ToTokenIds(const Json& array) {
  std::vector<api::TokenId> ids;
  for (const Json& value : array) {
    const auto id = ToTokenId(value);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

void TakeStop(Fields& fields, std::vector<std::string>& stop) {
  const Json* value = fields.Take("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& text) {
    const bool is_good = text.is_string() && !text.get_ref<const std::string&>().empty() &&
                         text.get_ref<const std::string&>().size() <= kLongestStop;
    if (!is_good || stop.size() == kMostStops) {
      fields.Fail("stop", fmt::format("a text or up to {} texts of 1 to {} bytes", kMostStops,
                                      kLongestStop));
    }
    stop.push_back(text.get<std::string>());
  };
  if (value->is_array()) {
    for (const Json& text : *value) add(text);
  } else {
    add(*value);
  }
}

void TakeLogitBias(Fields& fields, std::map<api::TokenId, float>& bias) {
  const Json* value = fields.Take("logit_bias");
  if (value == nullptr) return;
  const auto fail = [&] {
    fields.Fail("logit_bias",
                fmt::format("up to {} token ids with a number from -100 to 100 each", kMostBiases));
  };
  if (!value->is_object() || value->size() > kMostBiases) fail();
  for (const auto& [key, number] : value->items()) {
    api::TokenId id = -1;
    const char* end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, id);
    if (error != std::errc() || stop != end || id < 0 || !number.is_number()) fail();
    const auto amount = number.get<double>();
    if (!(amount >= -100 && amount <= 100)) fail();
    bias[id] = static_cast<float>(amount);
  }
}

void TakeSeed(Fields& fields, GenerationSettings& settings) {
  const Json* value = fields.Take("seed");
  if (value == nullptr) return;
  if (!value->is_number_integer()) fields.Fail("seed", "a whole number of 64 bits");
  // Negative seeds are as good as any: their bits are taken.
  settings.sampling.seed = value->is_number_unsigned()
                               ? value->get<uint64_t>()
                               : static_cast<uint64_t>(value->get<int64_t>());
  settings.has_seed = true;
}

void TakeSampling(Fields& fields, api::Sampling& sampling) {
  const auto take = [&](const char* name, double low, double high, float otherwise) {
    return static_cast<float>(
        fields.TakeNumber(name, low, high).value_or(static_cast<double>(otherwise)));
  };
  sampling.temperature = take("temperature", 0, 2, 1);
  sampling.top_p = take("top_p", 0, 1, 1);
  sampling.min_p = take("min_p", 0, 1, 0);
  sampling.top_k = static_cast<int32_t>(fields.TakeInteger("top_k", 0, 1'000'000).value_or(0));
  sampling.frequency_penalty = take("frequency_penalty", -2, 2, 0);
  sampling.presence_penalty = take("presence_penalty", -2, 2, 0);
  sampling.repetition_penalty = take("repetition_penalty", 0.01, 100, 1);
  TakeLogitBias(fields, sampling.logit_bias);
}

void TakeStream(Fields& fields, GenerationSettings& settings) {
  settings.stream = fields.TakeBool("stream").value_or(false);
  const Json* options = fields.Take("stream_options");
  if (options == nullptr) return;
  if (!settings.stream) fields.Fail("stream_options", "\"stream\": true beside it");
  Fields inner(*options, "stream_options");
  settings.include_usage = inner.TakeBool("include_usage").value_or(false);
  inner.RefuseRest();
}

// Fields of the API that are about its host, not about the text. Those values that ask for what is
// done anyway are taken.
void RefuseForeign(Fields& fields) {
  constexpr char kNothing[] = "it would have no effect here";
  for (const char* name : {"user", "metadata", "safety_identifier", "prompt_cache_key"}) {
    fields.Refuse(name, kNothing);
  }
  fields.Refuse("store", "nothing is stored", false);
  if (const auto tier = fields.TakeString("service_tier"); tier && *tier != "auto") {
    if (*tier != "default") fields.Fail("service_tier", "auto or default");
  }
}

GenerationSettings TakeSettings(Fields& fields) {
  GenerationSettings settings;
  settings.model = fields.TakeString("model").value_or("");
  settings.max_tokens = fields.TakeInteger("max_tokens", 1, kMostTokens);
  settings.n = fields.TakeInteger("n", 1, kMostChoices).value_or(1);
  TakeSampling(fields, settings.sampling);
  TakeSeed(fields, settings);
  TakeStop(fields, settings.stop);
  TakeStream(fields, settings);
  RefuseForeign(fields);
  return settings;
}

// A string, or the parts of one.
std::string TakeContent(Fields& fields) {
  const Json* content = fields.Take("content");
  if (content == nullptr) fields.Fail("content", "a string or a list of text parts");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fields.Fail("content", "a string or a list of text parts");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], fmt::format("{}[{}]", fields.PathOf("content"), i));
    const std::string type = part.TakeString("type").value_or("");
    if (type != "text") part.Fail("type", "\"text\": nothing else can be read");
    const auto words = part.TakeString("text");
    if (!words) part.Fail("text", "a string");
    part.RefuseRest();
    text += *words;
  }
  return text;
}

// An assistant that calls needs to say nothing.
bool MayBeSilent(const std::string& role, const api::ChatMessage& message) {
  return role == "assistant" && !message.tool_calls.empty();
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
  }
  if (role == "tool") {
    message.tool_call_id = fields.TakeString("tool_call_id").value_or("");
    if (message.tool_call_id.empty()) fields.Fail("tool_call_id", "the id of a call");
    fields.TakeString("name");  // of the function, which the id names too
  } else {
    fields.Refuse("name", "names of participants are not supported");
  }
  fields.Refuse("refusal", "it is not supported");
  const bool is_silent = MayBeSilent(role, message) && fields.Take("content") == nullptr;
  if (!is_silent) message.content = TakeContent(fields);
  fields.RefuseRest();
  return message;
}

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

// As api::GenerateRequest::json_schema.
std::optional<std::string> TakeResponseFormat(Fields& fields) {
  const Json* format = fields.Take("response_format");
  if (format == nullptr) return std::nullopt;
  Fields inner(*format, "response_format");
  const std::string type = inner.TakeString("type").value_or("");
  std::optional<std::string> schema;
  if (type == "json_object") {
    schema = "";
  } else if (type == "json_schema") {
    const Json* described = inner.Take("json_schema");
    if (described == nullptr) inner.Fail("json_schema", "an object with a schema");
    Fields fields_of_schema(*described, inner.PathOf("json_schema"));
    const Json* document = fields_of_schema.Take("schema");
    if (document == nullptr || !document->is_object()) {
      fields_of_schema.Fail("schema", "a JSON Schema");
    }
    schema = document->dump();
    // Names for the reader; a schema is kept to in any case.
    fields_of_schema.TakeString("name");
    fields_of_schema.TakeString("description");
    fields_of_schema.TakeBool("strict");
    fields_of_schema.RefuseRest();
  } else if (type != "text") {
    inner.Fail("type", "text, json_object or json_schema");
  }
  inner.RefuseRest();
  return schema;
}

// Of "prompt" and "input": a text, a list of texts, token ids, or a list of lists of them.
std::vector<TextOrTokens> TakeTexts(Fields& fields, const std::string& name, int64_t most) {
  const auto fail = [&] {
    fields.Fail(name, fmt::format("a text, a list of up to {} texts, a list of token ids, or a "
                                  "list of up to {} lists of token ids",
                                  most, most));
  };
  const Json* value = fields.Take(name);
  if (value == nullptr) fail();
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array() || value->empty()) fail();
  if (value->front().is_number()) {
    auto ids = ToTokenIds(*value);
    if (!ids) fail();
    return {std::move(*ids)};
  }
  if (std::ssize(*value) > most) fail();
  std::vector<TextOrTokens> texts;
  for (const Json& entry : *value) {
    if (entry.is_string()) {
      texts.emplace_back(entry.get<std::string>());
      continue;
    }
    auto ids = entry.is_array() ? ToTokenIds(entry) : std::nullopt;
    if (!ids || ids->empty()) fail();
    texts.emplace_back(std::move(*ids));
  }
  return texts;
}

}  // namespace

ChatRequest ParseChatRequest(std::string_view body) {
  const Json document = ParseBody(body);
  Fields fields(document);
  for (const char* name : {"functions", "function_call"}) {
    fields.Refuse(name, "it is of an older interface: use tools and tool_choice");
  }
  const std::optional<std::string> schema = TakeResponseFormat(fields);
  ChatRequest request = {TakeSettings(fields), TakeMessages(fields), TakeTools(fields)};
  GenerationSettings& settings = request.settings;
  settings.json_schema = schema;
  if (const auto newer = fields.TakeInteger("max_completion_tokens", 1, kMostTokens)) {
    if (settings.max_tokens) fields.Fail("max_completion_tokens", "no max_tokens beside it");
    settings.max_tokens = newer;
  }
  const bool wants_scores = fields.TakeBool("logprobs").value_or(false);
  const auto top = fields.TakeInteger("top_logprobs", 0, 20);
  if (top && !wants_scores) fields.Fail("top_logprobs", "\"logprobs\": true beside it");
  if (wants_scores) settings.top_logprobs = static_cast<int>(top.value_or(0));
  for (const char* name :
       {"audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"}) {
    fields.Refuse(name, "it is not supported");
  }
  fields.Refuse("modalities", "only text can be generated", Json::array({"text"}));
  fields.RefuseRest();
  return request;
}

CompletionRequest ParseCompletionRequest(std::string_view body) {
  constexpr int64_t kDefaultTokens = 16;  // of the API
  const Json document = ParseBody(body);
  Fields fields(document);
  CompletionRequest request = {TakeSettings(fields), TakeTexts(fields, "prompt", kMostChoices)};
  GenerationSettings& settings = request.settings;
  if (!settings.max_tokens) settings.max_tokens = kDefaultTokens;
  if (const auto top = fields.TakeInteger("logprobs", 0, 20)) {
    settings.top_logprobs = static_cast<int>(*top);
  }
  fields.Refuse("echo", "the prompt cannot be echoed", false);
  fields.Refuse("best_of", "only as many answers as asked for are generated", settings.n);
  fields.Refuse("suffix", "text cannot be inserted before a suffix");
  fields.RefuseRest();
  if (settings.n * std::ssize(request.prompts) > kMostChoices) {
    fields.Fail("n", fmt::format("at most {} answers to all prompts together", kMostChoices));
  }
  return request;
}

EmbeddingsRequest ParseEmbeddingsRequest(std::string_view body) {
  const Json document = ParseBody(body);
  Fields fields(document);
  EmbeddingsRequest request;
  request.model = fields.TakeString("model").value_or("");
  request.inputs = TakeTexts(fields, "input", kMostInputs);
  const std::string format = fields.TakeString("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.Fail("encoding_format", "float or base64");
  request.as_base64 = format == "base64";
  fields.Refuse("dimensions", "embeddings have the size of the model's hidden state");
  fields.Refuse("user", "it would have no effect here");
  fields.RefuseRest();
  return request;
}

TokenizeRequest ParseTokenizeRequest(std::string_view body) {
  const Json document = ParseBody(body);
  Fields fields(document);
  TokenizeRequest request;
  const auto content = fields.TakeString("content");
  if (!content) fields.Fail("content", "a string");
  request.content = *content;
  request.add_special = fields.TakeBool("add_special").value_or(false);
  request.with_pieces = fields.TakeBool("with_pieces").value_or(false);
  fields.RefuseRest();
  return request;
}

DetokenizeRequest ParseDetokenizeRequest(std::string_view body) {
  const Json document = ParseBody(body);
  Fields fields(document);
  const Json* tokens = fields.Take("tokens");
  const auto ids = tokens != nullptr && tokens->is_array() ? ToTokenIds(*tokens) : std::nullopt;
  if (!ids) fields.Fail("tokens", "a list of token ids");
  fields.RefuseRest();
  return {*ids};
}

}  // namespace hearth::serve
