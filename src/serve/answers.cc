#include "serve/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "serve/json_fields.h"
#include "serve/request_error.h"

namespace hearth::serve {
namespace {

// After the items before it.
void AppendItem(std::string& list, const std::string& item) {
  if (!list.empty()) list += ',';
  list += item;
}

// A JSON object with one more member, whose value is JSON already.
std::string WithMember(const Json& object, const char* name, const std::string& value) {
  std::string text = JsonText(object);
  text.pop_back();
  return text + ",\"" + name + "\":" + value + "}";
}

Json FinishWord(const Answer& answer) {
  if (!answer.finish_reason) return nullptr;
  if (*answer.finish_reason == api::FinishReason::kLength) return "length";
  return answer.ends_in_calls ? "tool_calls" : "stop";
}

// JSON has no minus infinity; the API says -9999 for what is as good as impossible.
double Logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

Json Bytes(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

Json ChatScore(const NamedScore& score) {
  return {
      {"token", score.bytes}, {"logprob", Logprob(score.logprob)}, {"bytes", Bytes(score.bytes)}};
}

// Scores are many: as text, a token at a time, they take a tenth of the memory.
std::string ChatScores(const Answer& answer) {
  if (!answer.scores) return "null";
  std::string content;
  for (const NamedToken& named : *answer.scores) {
    Json token = ChatScore(named.token);
    token["top_logprobs"] = Json::array();
    for (const NamedScore& top : named.top) token["top_logprobs"].push_back(ChatScore(top));
    AppendItem(content, JsonText(token));
  }
  return R"({"content":[)" + content + R"(],"refusal":null})";
}

std::string CompletionScores(const Answer& answer) {
  if (!answer.scores) return "null";
  std::string tokens, logprobs, tops, offsets;
  size_t offset = answer.text_offset;
  for (const NamedToken& named : *answer.scores) {
    AppendItem(tokens, JsonText(named.token.bytes));
    AppendItem(offsets, std::to_string(offset));
    offset += CountCharacters(named.token.bytes);
    if (!named.has_score) {
      AppendItem(logprobs, "null");
      AppendItem(tops, "null");
      continue;
    }
    AppendItem(logprobs, JsonText(Logprob(named.token.logprob)));
    // The token that was chosen is among them even where others were likelier.
    Json top = Json::object();
    for (const NamedScore& score : named.top) top[score.bytes] = Logprob(score.logprob);
    top[named.token.bytes] = Logprob(named.token.logprob);
    AppendItem(tops, JsonText(top));
  }
  return R"({"tokens":[)" + tokens + R"(],"token_logprobs":[)" + logprobs +
         R"(],"top_logprobs":[)" + tops + R"(],"text_offset":[)" + offsets + "]}";
}

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json HeadJson(const AnswerHead& head, bool is_chunk) {
  const char* object = head.kind == AnswerKind::kCompletion ? "text_completion"
                       : is_chunk                           ? "chat.completion.chunk"
                                                            : "chat.completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

// The calls of a message, or of a part of one, which counts them.
Json CallsJson(const std::vector<CallOfTool>& calls, bool is_part) {
  Json list = Json::array();
  for (const CallOfTool& call : calls) {
    Json entry = Json::object();
    if (is_part) entry["index"] = call.index;
    Json function = Json::object();
    if (!call.name.empty()) {
      entry["id"] = call.id;
      entry["type"] = "function";
      function["name"] = call.name;
    }
    function["arguments"] = call.arguments;
    entry["function"] = std::move(function);
    list.push_back(std::move(entry));
  }
  return list;
}

// What is said beside calls: null where that is nothing.
Json ContentJson(const Answer& answer) {
  if (answer.text.empty() && !answer.calls.empty()) return nullptr;
  return answer.text;
}

Json MessageJson(const Answer& answer) {
  Json message = {{"role", "assistant"}, {"content", ContentJson(answer)}, {"refusal", nullptr}};
  if (!answer.thoughts.empty()) message["reasoning_content"] = answer.thoughts;
  if (!answer.calls.empty()) message["tool_calls"] = CallsJson(answer.calls, false);
  return message;
}

std::string CompletionChoice(const Answer& answer) {
  return WithMember(
      {{"index", answer.index}, {"text", answer.text}, {"finish_reason", FinishWord(answer)}},
      "logprobs", CompletionScores(answer));
}

// `name`: "message" or "delta".
std::string ChatChoice(const Answer& answer, const char* name, Json message) {
  return WithMember(
      {{"index", answer.index}, {name, std::move(message)}, {"finish_reason", FinishWord(answer)}},
      "logprobs", ChatScores(answer));
}

// Of numbers as they lie in memory, little-endian.
template <typename Number>
std::string Base64(const std::vector<Number>& numbers) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[group >> (18 - 6 * k) & 63u] : '=';
    }
  }
  return text;
}

// With as many digits as tell a float from its neighbours: half of what a double takes.
std::string NumbersText(const std::vector<float>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

Json SessionsJson(const api::Stats& stats) {
  return {{"files", stats.sessions},
          {"bytes", stats.session_bytes},
          {"saved", stats.sessions_saved},
          {"saved_bytes", stats.sessions_saved_bytes},
          {"restored", stats.sessions_restored},
          {"restored_bytes", stats.sessions_restored_bytes},
          {"restored_tokens", stats.sessions_restored_tokens},
          {"evicted", stats.sessions_evicted},
          {"evicted_bytes", stats.sessions_evicted_bytes},
          {"failed", stats.sessions_failed}};
}

Json ModelJson(const ModelEntry& model) {
  Json json = {{"id", model.name},
               {"object", "model"},
               {"created", model.created},
               {"owned_by", "hearth"},
               {"loaded", model.is_loaded}};
  if (model.context) json["context_length"] = *model.context;
  return json;
}

bool IsUtf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace

size_t CountCharacters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;  // the others go on with a character
  }));
}

std::string AnswerDocument(const AnswerHead& head, const std::vector<Answer>& answers,
                           const Usage& usage) {
  std::string choices;
  for (const Answer& answer : answers) {
    AppendItem(choices, head.kind == AnswerKind::kCompletion
                            ? CompletionChoice(answer)
                            : ChatChoice(answer, "message", MessageJson(answer)));
  }
  Json document = HeadJson(head, false);
  document["usage"] = UsageJson(usage);
  return WithMember(document, "choices", "[" + choices + "]");
}

std::string ChunkDocument(const AnswerHead& head, const Answer& delta, bool first,
                          bool usage_follows) {
  Json document = HeadJson(head, true);
  if (usage_follows) document["usage"] = nullptr;
  if (head.kind == AnswerKind::kCompletion) {
    return WithMember(document, "choices", "[" + CompletionChoice(delta) + "]");
  }
  Json content = Json::object();
  if (first) content["role"] = "assistant";
  if (first || !delta.text.empty()) content["content"] = ContentJson(delta);
  if (!delta.thoughts.empty()) content["reasoning_content"] = delta.thoughts;
  if (!delta.calls.empty()) content["tool_calls"] = CallsJson(delta.calls, true);
  return WithMember(document, "choices", "[" + ChatChoice(delta, "delta", content) + "]");
}

std::string UsageDocument(const AnswerHead& head, const Usage& usage) {
  Json document = HeadJson(head, true);
  document["choices"] = Json::array();
  document["usage"] = UsageJson(usage);
  return JsonText(document);
}

std::string EmbeddingsDocument(const std::string& model, const std::vector<Embedding>& embeddings,
                               bool as_base64, int64_t prompt_tokens) {
  std::string data;
  for (size_t i = 0; i < embeddings.size(); ++i) {
    const std::vector<float>& vector = embeddings[i].vector;
    const Json head = {{"object", "embedding"}, {"index", i}};
    AppendItem(data, WithMember(head, "embedding",
                                as_base64 ? JsonText(Base64(vector)) : NumbersText(vector)));
  }
  return WithMember(
      {{"object", "list"},
       {"model", model},
       {"usage", {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}}}},
      "data", "[" + data + "]");
}

std::string ModelsDocument(const std::vector<ModelEntry>& models) {
  Json data = Json::array();
  for (const ModelEntry& model : models) data.push_back(ModelJson(model));
  return JsonText({{"object", "list"}, {"data", std::move(data)}});
}

std::string ModelDocument(const ModelEntry& model) { return JsonText(ModelJson(model)); }

std::string TokensDocument(const std::vector<api::TokenId>& tokens,
                           const std::function<std::string(api::TokenId)>& piece_of) {
  std::string list;
  for (const api::TokenId token : tokens) {
    if (piece_of) {
      const std::string piece = piece_of(token);
      AppendItem(list,
                 JsonText({{"id", token}, {"piece", IsUtf8(piece) ? Json(piece) : Bytes(piece)}}));
    } else {
      AppendItem(list, std::to_string(token));
    }
    if (list.size() <= kMostAnswerBytes) continue;
    throw RequestError(
        Status::kPayloadTooLarge,
        fmt::format("its tokens take more than {} bytes: send the text in parts", kMostAnswerBytes),
        "content");
  }
  return R"({"tokens":[)" + list + "]}";
}

std::string ContentDocument(const std::string& content) { return JsonText({{"content", content}}); }

std::string StatsDocument(const std::string& name, const api::ModelInfo& info,
                          const api::Stats& stats) {
  return JsonText({{"model",
                    {{"name", name},
                     {"architecture", info.architecture},
                     {"mode", info.mode},
                     {"instruction_set", info.instruction_set},
                     {"threads", info.threads},
                     {"context", info.context},
                     {"vocab_size", info.vocab_size},
                     {"embedding_size", info.embedding_size},
                     {"is_streamed", info.is_streamed}}},
                   {"requests",
                    {{"running", stats.running},
                     {"waiting", stats.waiting},
                     {"parallel", info.parallel},
                     {"queue", info.queue}}},
                   {"tokens",
                    {{"prompt", stats.prompt_tokens},
                     {"reused", stats.reused_tokens},
                     {"generated", stats.generated_tokens}}},
                   {"passes",
                    {{"prefill", stats.prefill_passes},
                     {"prefill_seconds", stats.prefill_seconds},
                     {"decode", stats.decode_passes},
                     {"decode_seconds", stats.decode_seconds},
                     {"failed", stats.failed_passes}}},
                   {"memory",
                    {{"limit_bytes", info.memory_limit_bytes},
                     {"resident_bytes", stats.resident_bytes},
                     {"ledger", stats.ledger},
                     {"kv_pages", stats.kv_pages},
                     {"kv_pages_free", stats.kv_pages_free},
                     {"kv_pages_promised", stats.kv_pages_promised},
                     {"kv_pages_on_flash", stats.kv_pages_on_flash}}},
                   {"io",
                    {{"neurons", stats.neurons},
                     {"pinned", stats.neurons_pinned},
                     {"cached", stats.neurons_cached},
                     {"read", stats.neurons_read},
                     {"hit_rate", stats.hit_rate()},
                     {"decode_reads", stats.decode_reads},
                     {"decode_bytes_read", stats.decode_bytes_read},
                     {"bytes_read", stats.bytes_read}}},
                   {"sessions", SessionsJson(stats)},
                   {"fault", stats.fault.empty() ? Json(nullptr) : Json(stats.fault)}});
}

std::string NeuronsDocument(const api::NeuronPicture& picture, bool is_streamed) {
  if (picture.layers == 0) return JsonText({{"shape", nullptr}, {"last_pass", nullptr}});
  Json last = nullptr;
  if (picture.pass > 0) {
    last = {{"pass", picture.pass},
            {"tokens", picture.tokens},
            {"pinned", Base64(picture.pinned)},
            {"cached", Base64(picture.cached)},
            {"read", Base64(picture.read)}};
  }
  return JsonText({{"shape",
                    {{"layers", picture.layers},
                     {"columns", picture.columns},
                     {"experts", picture.experts},
                     {"neurons", picture.neurons},
                     {"pinned_neurons", picture.pinned_neurons},
                     {"is_streamed", is_streamed}}},
                   {"last_pass", std::move(last)}});
}

std::string HealthDocument(const std::string& status, const std::string& message) {
  Json document = {{"status", status}};
  if (!message.empty()) document["message"] = message;
  return JsonText(document);
}

}  // namespace hearth::serve
