// The C interface over the C++ one. Every function ends exceptions here.
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "api/c_api_support.h"

using namespace hearth::api;  // what the functions below are made of

extern "C" {

void hearth_options_init(hearth_options* options) {
  if (options == nullptr) return;
  const LoadOptions defaults;
  *options = {.memory_bytes = defaults.memory_bytes,
              .context = defaults.context,
              .mode = nullptr,
              .threads = defaults.threads,
              .parallel = defaults.parallel,
              .queue = defaults.queue,
              .plan = nullptr,
              .activation = nullptr,
              .chat_format = nullptr};
}

hearth_status hearth_load(const char* path, const hearth_options* options, hearth_model** model,
                          hearth_error* error) {
  Clear(model);
  return Guarded(error, [&] {
    Require(path != nullptr && model != nullptr, "a path and a place for the model are needed");
    *model = new hearth_model{
        Model::Load(path, options != nullptr ? ToOptions(*options) : LoadOptions())};
    return HEARTH_OK;
  });
}

void hearth_free(hearth_model* model) { delete model; }

int64_t hearth_context(const hearth_model* model) {
  return model != nullptr ? model->model.info().context : 0;
}

int64_t hearth_vocab_size(const hearth_model* model) {
  return model != nullptr ? model->model.info().vocab_size : 0;
}

hearth_status hearth_tokenize(const hearth_model* model, const char* text, size_t bytes,
                              int as_prompt, int32_t* tokens, size_t capacity, size_t* count,
                              hearth_error* error) {
  Clear(count);
  return Guarded(error, [&] {
    Require(model != nullptr, "a model is needed");
    const std::span<const char> all = Array(text, bytes, "the text is missing");
    return CopyOut(model->model.Tokenize({all.data(), all.size()}, as_prompt != 0), tokens,
                   capacity, count);
  });
}

hearth_status hearth_detokenize(const hearth_model* model, const int32_t* tokens,
                                size_t token_count, char* text, size_t capacity, size_t* bytes,
                                hearth_error* error) {
  Clear(bytes);
  return Guarded(error, [&] {
    Require(model != nullptr, "a model is needed");
    const std::span<const int32_t> all = Array(tokens, token_count, "tokens are missing");
    return CopyOut(model->model.Detokenize({all.begin(), all.end()}), text, capacity, bytes);
  });
}

hearth_status hearth_tokenize_trusted(const hearth_model* model, const char* text, size_t bytes,
                                      int as_prompt, int32_t* tokens, size_t capacity,
                                      size_t* count, hearth_error* error) {
  Clear(count);
  return Guarded(error, [&] {
    Require(model != nullptr, "a model is needed");
    const std::span<const char> all = Array(text, bytes, "the text is missing");
    return CopyOut(model->model.Tokenize({all.data(), all.size()}, as_prompt != 0, true), tokens,
                   capacity, count);
  });
}

hearth_status hearth_token_bytes(const hearth_model* model, int32_t token, char* text,
                                 size_t capacity, size_t* bytes, hearth_error* error) {
  Clear(bytes);
  return Guarded(error, [&] {
    Require(model != nullptr, "a model is needed");
    return CopyOut(model->model.TokenBytes(token), text, capacity, bytes);
  });
}

hearth_status hearth_embed(hearth_model* model, const char* text, size_t bytes, float* vector,
                           size_t capacity, size_t* count, hearth_error* error) {
  Clear(count);
  return Guarded(error, [&] {
    Require(model != nullptr, "a model is needed");
    const std::span<const char> all = Array(text, bytes, "the text is missing");
    const auto tokens = model->model.TokenizeForEmbedding({all.data(), all.size()});
    return CopyOut(model->model.Embed(tokens), vector, capacity, count);
  });
}

hearth_status hearth_encode_chat(const hearth_model* model, const hearth_message* messages,
                                 size_t message_count, int32_t* tokens, size_t capacity,
                                 size_t* count, hearth_error* error) {
  Clear(count);
  return Guarded(error, [&] {
    Require(model != nullptr && messages != nullptr, "a model and messages are needed");
    std::vector<ChatMessage> conversation;
    for (const hearth_message& message : Array(messages, message_count, "messages are missing")) {
      Require(message.role != nullptr && message.content != nullptr,
              "a message needs a role and content");
      conversation.push_back({message.role, message.content});
    }
    return CopyOut(model->model.EncodeChat(conversation).tokens, tokens, capacity, count);
  });
}

const char* hearth_chat_stop(const hearth_model* model, size_t index) {
  if (model == nullptr || index >= model->model.info().chat_stop.size()) return nullptr;
  return model->model.info().chat_stop[index].c_str();
}

void hearth_request_init(hearth_request* request) {
  if (request == nullptr) return;
  const GenerateRequest defaults;
  const Sampling& sampling = defaults.sampling;
  *request = {.max_tokens = defaults.max_tokens,
              .sampling = {.seed = sampling.seed,
                           .temperature = sampling.temperature,
                           .top_p = sampling.top_p,
                           .min_p = sampling.min_p,
                           .repetition_penalty = sampling.repetition_penalty,
                           .frequency_penalty = sampling.frequency_penalty,
                           .presence_penalty = sampling.presence_penalty,
                           .top_k = sampling.top_k,
                           .repetition_window = sampling.repetition_window,
                           .biases = nullptr,
                           .bias_count = 0},
              .stop = nullptr,
              .stop_count = 0};
}

hearth_session* hearth_session_new(hearth_model* model) {
  hearth_session* session = nullptr;
  Quietly([&] {
    if (model != nullptr) session = new hearth_session{Session(model->model)};
  });
  return session;
}

void hearth_session_free(hearth_session* session) { delete session; }

int64_t hearth_session_length(const hearth_session* session) {
  return session != nullptr ? static_cast<int64_t>(session->session.history().size()) : 0;
}

void hearth_session_truncate(hearth_session* session, int64_t length) {
  if (session != nullptr) session->session.Truncate(length);
}

hearth_status hearth_generate(hearth_session* session, const int32_t* tokens, size_t token_count,
                              const hearth_request* request, hearth_text_fn on_text, void* user,
                              hearth_result* result, hearth_error* error) {
  Clear(result);
  return Guarded(error, [&] {
    Require(session != nullptr, "a session is needed");
    GenerateRequest asked = ToRequest(request);
    const std::span<const int32_t> prompt = Array(tokens, token_count, "tokens are missing");
    asked.prompt.assign(prompt.begin(), prompt.end());
    const GenerateResult generated =
        session->session.Generate(std::move(asked), [&](std::string_view text) {
          return on_text == nullptr || on_text(text.data(), text.size(), user) != 0;
        });
    if (result != nullptr) *result = ToResult(generated.outcome);
    return HEARTH_OK;
  });
}

void hearth_cancel(hearth_session* session) {
  if (session != nullptr) Quietly([&] { session->session.Cancel(); });
}

void hearth_get_stats(const hearth_model* model, hearth_stats* stats) {
  Clear(stats);
  if (model == nullptr || stats == nullptr) return;
  Quietly([&] {
    const Stats from = model->model.stats();
    *stats = {.memory_limit_bytes = model->model.info().memory_limit_bytes,
              .resident_bytes = from.resident_bytes,
              .running = from.running,
              .waiting = from.waiting,
              .prompt_tokens = from.prompt_tokens,
              .reused_tokens = from.reused_tokens,
              .generated_tokens = from.generated_tokens,
              .prefill_seconds = from.prefill_seconds,
              .decode_seconds = from.decode_seconds,
              .hit_rate = from.hit_rate(),
              .bytes_read = from.bytes_read};
  });
}

void hearth_each_ledger_entry(const hearth_model* model,
                              void (*fn)(const char* name, uint64_t bytes, void* user),
                              void* user) {
  if (model == nullptr || fn == nullptr) return;
  Quietly([&] {
    for (const auto& [name, bytes] : model->model.stats().ledger) fn(name.c_str(), bytes, user);
  });
}

}  // extern "C"
