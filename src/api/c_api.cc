// The C interface over the C++ one. Every function ends exceptions here.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hearth/hearth.h"
#include "hearth/hearth.hpp"

struct hearth_model {
  hearth::api::Model model;
};

struct hearth_session {
  hearth::api::Session session;
};

namespace {

using namespace hearth::api;

hearth_status StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return HEARTH_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return HEARTH_NOT_FOUND;
    case ErrorCode::kIo:
      return HEARTH_IO;
    case ErrorCode::kCorrupt:
      return HEARTH_CORRUPT;
    case ErrorCode::kUnsupported:
      return HEARTH_UNSUPPORTED;
    case ErrorCode::kOutOfBudget:
      return HEARTH_OUT_OF_BUDGET;
    case ErrorCode::kContextFull:
      return HEARTH_CONTEXT_FULL;
    case ErrorCode::kCancelled:
      return HEARTH_CANCELLED;
    case ErrorCode::kBusy:
      return HEARTH_BUSY;
    case ErrorCode::kInternal:
      break;
  }
  return HEARTH_INTERNAL;
}

// Whether a byte of UTF-8 goes on with a character.
bool IsInsideCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

hearth_status Report(hearth_error* error, hearth_status status, const char* message) {
  if (error != nullptr) {
    error->status = status;
    size_t length = std::strlen(message);
    if (length >= sizeof(error->message)) {
      length = sizeof(error->message) - 1;
      while (length > 0 && IsInsideCharacter(message[length])) --length;
    }
    std::memcpy(error->message, message, length);
    error->message[length] = '\0';
  }
  return status;
}

// Runs fn, which returns a status, and turns what it throws into one.
template <typename Fn>
hearth_status Guarded(hearth_error* error, Fn&& fn) noexcept {
  try {
    const hearth_status status = std::forward<Fn>(fn)();
    return Report(error, status, status == HEARTH_TOO_SMALL ? "the buffer is too small" : "");
  } catch (const Error& thrown) {
    return Report(error, StatusOf(thrown.code()), thrown.what());
  } catch (const std::bad_alloc&) {
    return Report(error, HEARTH_OUT_OF_BUDGET, "the system has no more memory to give");
  } catch (const std::exception& thrown) {
    return Report(error, HEARTH_INTERNAL, thrown.what());
  } catch (...) {
    return Report(error, HEARTH_INTERNAL, "an unknown error");
  }
}

void Require(bool condition, const char* what) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, what);
}

// For functions that cannot say what went wrong.
template <typename Fn>
void Quietly(Fn&& fn) noexcept {
  Guarded(nullptr, [&] {
    std::forward<Fn>(fn)();
    return HEARTH_OK;
  });
}

// An array of the caller's, where it can be one.
template <typename T>
std::span<const T> Array(const T* first, size_t count, const char* what) {
  Require(first != nullptr || count == 0, what);
  Require(count <= PTRDIFF_MAX / sizeof(T), "a count is more than memory holds");
  return {first, count};
}

template <typename T>
void Clear(T* place) {
  if (place != nullptr) *place = {};
}

// Copies what there is room for, and says how much there is.
template <typename T, typename Range>
hearth_status CopyOut(const Range& from, T* to, size_t capacity, size_t* count) {
  Require(count != nullptr && (to != nullptr || capacity == 0), "a result needs a place");
  *count = from.size();
  std::copy_n(from.begin(), std::min(capacity, from.size()), to);
  return from.size() > capacity ? HEARTH_TOO_SMALL : HEARTH_OK;
}

LoadOptions ToOptions(const hearth_options& from) {
  return {.memory_bytes = from.memory_bytes,
          .threads = from.threads,
          .context = from.context,
          .mode = from.mode != nullptr ? from.mode : "auto",
          .parallel = from.parallel,
          .queue = from.queue,
          .plan = from.plan != nullptr ? from.plan : "",
          .activation = from.activation != nullptr ? from.activation : "",
          .chat_format = from.chat_format != nullptr ? from.chat_format : ""};
}

Sampling ToSampling(const hearth_sampling& from) {
  Sampling to = {.temperature = from.temperature,
                 .top_k = from.top_k,
                 .top_p = from.top_p,
                 .min_p = from.min_p,
                 .repetition_penalty = from.repetition_penalty,
                 .repetition_window = from.repetition_window,
                 .frequency_penalty = from.frequency_penalty,
                 .presence_penalty = from.presence_penalty,
                 .logit_bias = {},
                 .seed = from.seed};
  for (const hearth_bias& bias : Array(from.biases, from.bias_count, "biases are missing")) {
    to.logit_bias[bias.token] = bias.bias;
  }
  return to;
}

GenerateRequest ToRequest(const hearth_request& from) {
  GenerateRequest to;
  to.max_tokens = from.max_tokens;
  to.sampling = ToSampling(from.sampling);
  for (const char* const stop : Array(from.stop, from.stop_count, "stop texts are missing")) {
    Require(stop != nullptr, "a stop text is missing");
    to.stop.emplace_back(stop);
  }
  return to;
}

hearth_result ToResult(const Outcome& outcome) {
  return {.finish = outcome.finish_reason == FinishReason::kStop     ? HEARTH_FINISH_STOP
                    : outcome.finish_reason == FinishReason::kLength ? HEARTH_FINISH_LENGTH
                                                                     : HEARTH_FINISH_CANCELLED,
          .prompt_tokens = outcome.prompt_tokens,
          .reused_tokens = outcome.reused_tokens,
          .generated_tokens = static_cast<int64_t>(outcome.generated.size()),
          .wait_ms = outcome.wait_ms,
          .prefill_ms = outcome.prefill_ms,
          .decode_ms = outcome.decode_ms};
}

}  // namespace

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
    hearth_request settings;
    hearth_request_init(&settings);
    if (request != nullptr) settings = *request;
    GenerateRequest asked = ToRequest(settings);
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
