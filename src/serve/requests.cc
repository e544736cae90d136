#include "serve/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "serve/chat_messages.h"
#include "serve/doors/adapter_requests.h"
#include "serve/json_fields.h"
#include "serve/request_error.h"
#include "serve/tool_requests.h"

namespace hearth::serve {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kLongestStop = 1024;
constexpr size_t kMostBiases = 1024;
constexpr int64_t kMostTokens = int64_t{1} << 31;

// A token id, which a vocabulary may still not have.
std::optional<api::TokenId> ToTokenId(const Json& value) {
  const auto id = WholeNumber(value);
  if (!id || *id < 0 || *id > INT32_MAX) return std::nullopt;
  return static_cast<api::TokenId>(*id);
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
    const bool is_good =
        text.is_string() && text.get_ref<const std::string&>().size() <= kLongestStop;
    if (!is_good || stop.size() == kMostStops) {
      fields.Fail("stop",
                  fmt::format("a text or up to {} texts of {} bytes", kMostStops, kLongestStop));
    }
    // An empty one asks for nothing.
    if (text != "") stop.push_back(text.get<std::string>());
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
  // Negative seeds are as good as any: their bits are taken.
  if (value->is_number_unsigned()) {
    settings.sampling.seed = value->get<uint64_t>();
  } else {
    const auto seed = WholeNumber(*value);
    if (!seed) fields.Fail("seed", "a whole number of 64 bits");
    settings.sampling.seed = static_cast<uint64_t>(*seed);
  }
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
  // Where nothing is streamed they ask for nothing: usage is there anyway.
  Fields inner(*options, "stream_options");
  settings.include_usage = inner.TakeBool("include_usage").value_or(false);
  inner.Ignore("include_obfuscation");
  inner.RefuseRest();
}

// Fields of the API that are about its host, its services or its models, not about the text:
// docs/server.md says that they change nothing.
void IgnoreForeign(Fields& fields) {
  for (const char* name :
       {"user", "metadata", "store", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "service_tier", "reasoning_effort", "verbosity", "prediction"}) {
    fields.Ignore(name);
  }
}

// How many tokens may be generated: both names are upper bounds, so that the smaller one holds.
std::optional<int64_t> TakeMaxTokens(Fields& fields, int64_t least) {
  const auto most = fields.TakeInteger("max_tokens", least, kMostTokens);
  const auto newer = fields.TakeInteger("max_completion_tokens", 1, kMostTokens);
  return most && newer ? std::min(most, newer) : most ? most : newer;
}

// What the model's chat template may ask for.
std::string TakeVariables(Fields& fields) {
  const Json* given = fields.Take("chat_template_kwargs");
  const auto thinking = fields.TakeBool("enable_thinking");
  const auto effort = fields.TakeString("reasoning_effort");
  if (given != nullptr && !given->is_object()) fields.Fail("chat_template_kwargs", "an object");
  if (!thinking && !effort) return given != nullptr ? given->dump() : "";
  Json variables = given != nullptr ? *given : Json::object();
  if (thinking) variables["enable_thinking"] = *thinking;
  if (effort) variables["reasoning_effort"] = *effort;
  return variables.dump();
}

void RefuseRest(const Fields& fields, ParseOptions options) {
  if (!options.lenient) fields.RefuseRest();
}

GenerationSettings TakeSettings(Fields& fields, bool echo = false) {
  GenerationSettings settings;
  settings.echo = echo;
  settings.model = fields.TakeString("model").value_or("");
  settings.max_tokens = TakeMaxTokens(fields, echo ? 0 : 1);
  settings.n = fields.TakeInteger("n", 1, kMostChoices).value_or(1);
  TakeSampling(fields, settings.sampling);
  TakeSeed(fields, settings);
  TakeStop(fields, settings.stop);
  TakeStream(fields, settings);
  settings.adapters = TakeAdapters(fields);
  IgnoreForeign(fields);
  return settings;
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

ChatRequest ParseChatRequest(std::string_view body, ParseOptions options) {
  const Json document = ParseBody(body);
  Fields fields(document);
  constexpr char kOlder[] = "it is of an older interface: use tools and tool_choice";
  fields.Refuse("functions", kOlder, Json::array());
  fields.Refuse("function_call", kOlder, "none");
  const std::optional<std::string> schema = TakeResponseFormat(fields);
  ChatRequest request = {TakeSettings(fields), TakeMessages(fields), TakeTools(fields)};
  GenerationSettings& settings = request.settings;
  settings.json_schema = schema;
  request.variables = TakeVariables(fields);
  const bool wants_scores = fields.TakeBool("logprobs").value_or(false);
  const auto top = fields.TakeInteger("top_logprobs", 0, 20);
  if (top > 0 && !wants_scores)
    fields.Fail("top_logprobs", "\"logprobs\": true in the same request");
  if (wants_scores) settings.top_logprobs = static_cast<int>(top.value_or(0));
  for (const char* name : {"audio", "web_search_options"}) {
    fields.Refuse(name, "it is not supported");
  }
  fields.Refuse("modalities", "only text can be generated", Json::array({"text"}));
  RefuseRest(fields, options);
  return request;
}

CompletionRequest ParseCompletionRequest(std::string_view body, ParseOptions options) {
  constexpr int64_t kDefaultTokens = 16;  // of the API
  const Json document = ParseBody(body);
  Fields fields(document);
  const bool echo = fields.TakeBool("echo").value_or(false);
  CompletionRequest request = {TakeSettings(fields, echo),
                               TakeTexts(fields, "prompt", kMostChoices)};
  GenerationSettings& settings = request.settings;
  if (!settings.max_tokens) settings.max_tokens = kDefaultTokens;
  request.parse_special = fields.TakeBool("parse_special").value_or(false);
  const Json* scores = fields.Take("logprobs");
  const bool has_scores = scores != nullptr && *scores != false;
  if (const auto top = has_scores ? fields.TakeInteger("logprobs", 0, 20) : std::nullopt) {
    settings.top_logprobs = static_cast<int>(*top);
  }
  fields.Refuse("best_of", "only as many answers as asked for are generated", settings.n);
  fields.Refuse("suffix", "text cannot be inserted before a suffix", "");
  RefuseRest(fields, options);
  if (settings.n * std::ssize(request.prompts) > kMostChoices) {
    fields.Fail("n", fmt::format("at most {} answers to all prompts together", kMostChoices));
  }
  return request;
}

EmbeddingsRequest ParseEmbeddingsRequest(std::string_view body, ParseOptions options) {
  const Json document = ParseBody(body);
  Fields fields(document);
  EmbeddingsRequest request;
  request.model = fields.TakeString("model").value_or("");
  request.inputs = TakeTexts(fields, "input", kMostInputs);
  const std::string format = fields.TakeString("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.Fail("encoding_format", "float or base64");
  request.as_base64 = format == "base64";
  request.dimensions = fields.TakeInteger("dimensions", 1, kMostTokens);
  IgnoreForeign(fields);
  RefuseRest(fields, options);
  return request;
}

TokenizeRequest ParseTokenizeRequest(std::string_view body, ParseOptions options) {
  const Json document = ParseBody(body);
  Fields fields(document);
  TokenizeRequest request;
  request.model = fields.TakeString("model").value_or("");
  const auto content = fields.TakeString("content");
  if (!content) fields.Fail("content", "a string");
  request.content = *content;
  request.add_special = fields.TakeBool("add_special").value_or(false);
  request.with_pieces = fields.TakeBool("with_pieces").value_or(false);
  request.parse_special = fields.TakeBool("parse_special").value_or(false);
  RefuseRest(fields, options);
  return request;
}

DetokenizeRequest ParseDetokenizeRequest(std::string_view body, ParseOptions options) {
  const Json document = ParseBody(body);
  Fields fields(document);
  const Json* tokens = fields.Take("tokens");
  const auto ids = tokens != nullptr && tokens->is_array() ? ToTokenIds(*tokens) : std::nullopt;
  if (!ids) fields.Fail("tokens", "a list of token ids");
  std::string model = fields.TakeString("model").value_or("");
  RefuseRest(fields, options);
  return {std::move(model), *ids};
}

}  // namespace hearth::serve
