// The C interface over the C++ one. Every function ends exceptions here.
#include <algorithm>
#include <cstring>
#include <new>
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

hearth_status Report(hearth_error* error, hearth_status status, const char* message) {
  if (error != nullptr) {
    error->status = status;
    const size_t length = std::min(std::strlen(message), sizeof(error->message) - 1);
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
          .plan = from.plan != nullptr ? from.plan : ""};
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
  for (size_t i = 0; i < from.bias_count; ++i) {
    to.logit_bias[from.biases[i].token] = from.biases[i].bias;
  }
  return to;
}

GenerateRequest ToRequest(const int32_t* tokens, size_t count, const hearth_request& from) {
  Require(tokens != nullptr || count == 0, "tokens are missing");
  GenerateRequest to;
  to.prompt.assign(tokens, tokens + count);
  to.max_tokens = from.max_tokens;
  to.sampling = ToSampling(from.sampling);
  to.stop.assign(from.stop, from.stop + from.stop_count);
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
  const LoadOptions defaults;
  *options = {.memory_bytes = defaults.memory_bytes,
              .context = defaults.context,
              .mode = nullptr,
              .threads = defaults.threads,
              .parallel = defaults.parallel,
              .queue = defaults.queue,
              .plan = nullptr};
}

hearth_status hearth_load(const char* path, const hearth_options* options, hearth_model** model,
                          hearth_error* error) {
  return Guarded(error, [&] {
    Require(path != nullptr && model != nullptr, "a path and a place for the model are needed");
    *model = nullptr;
    *model = new hearth_model{
        Model::Load(path, options != nullptr ? ToOptions(*options) : LoadOptions())};
    return HEARTH_OK;
  });
}

void hearth_free(hearth_model* model) { delete model; }

int64_t hearth_context(const hearth_model* model) { return model->model.info().context; }

int64_t hearth_vocab_size(const hearth_model* model) { return model->model.info().vocab_size; }

hearth_status hearth_tokenize(const hearth_model* model, const char* text, size_t bytes,
                              int as_prompt, int32_t* tokens, size_t capacity, size_t* count,
                              hearth_error* error) {
  return Guarded(error, [&] {
    Require(model != nullptr && (text != nullptr || bytes == 0), "a model and a text are needed");
    return CopyOut(model->model.Tokenize({text, bytes}, as_prompt != 0), tokens, capacity, count);
  });
}

hearth_status hearth_detokenize(const hearth_model* model, const int32_t* tokens,
                                size_t token_count, char* text, size_t capacity, size_t* bytes,
                                hearth_error* error) {
  return Guarded(error, [&] {
    Require(model != nullptr && (tokens != nullptr || token_count == 0),
            "a model and tokens are needed");
    return CopyOut(model->model.Detokenize({tokens, tokens + token_count}), text, capacity, bytes);
  });
}

hearth_status hearth_encode_chat(const hearth_model* model, const hearth_message* messages,
                                 size_t message_count, int32_t* tokens, size_t capacity,
                                 size_t* count, hearth_error* error) {
  return Guarded(error, [&] {
    Require(model != nullptr && messages != nullptr, "a model and messages are needed");
    std::vector<ChatMessage> conversation;
    for (size_t i = 0; i < message_count; ++i) {
      Require(messages[i].role != nullptr && messages[i].content != nullptr,
              "a message needs a role and content");
      conversation.push_back({messages[i].role, messages[i].content});
    }
    return CopyOut(model->model.EncodeChat(conversation).tokens, tokens, capacity, count);
  });
}

void hearth_request_init(hearth_request* request) {
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
  if (model == nullptr) return nullptr;
  return new (std::nothrow) hearth_session{Session(model->model)};
}

void hearth_session_free(hearth_session* session) { delete session; }

int64_t hearth_session_length(const hearth_session* session) {
  return static_cast<int64_t>(session->session.history().size());
}

void hearth_session_truncate(hearth_session* session, int64_t length) {
  session->session.Truncate(length);
}

hearth_status hearth_generate(hearth_session* session, const int32_t* tokens, size_t token_count,
                              const hearth_request* request, hearth_text_fn on_text, void* user,
                              hearth_result* result, hearth_error* error) {
  return Guarded(error, [&] {
    Require(session != nullptr, "a session is needed");
    hearth_request settings;
    hearth_request_init(&settings);
    if (request != nullptr) settings = *request;
    const GenerateResult generated = session->session.Generate(
        ToRequest(tokens, token_count, settings), [&](std::string_view text) {
          return on_text == nullptr || on_text(text.data(), text.size(), user) != 0;
        });
    if (result != nullptr) *result = ToResult(generated.outcome);
    return HEARTH_OK;
  });
}

void hearth_cancel(hearth_session* session) { session->session.Cancel(); }

void hearth_get_stats(const hearth_model* model, hearth_stats* stats) {
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
}

void hearth_each_ledger_entry(const hearth_model* model,
                              void (*fn)(const char* name, uint64_t bytes, void* user),
                              void* user) {
  for (const auto& [name, bytes] : model->model.stats().ledger) fn(name.c_str(), bytes, user);
}

}  // extern "C"
