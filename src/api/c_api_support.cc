#include "api/c_api_support.h"

#include <cstring>

namespace hearth::api {
namespace {

// Whether a byte of UTF-8 goes on with a character.
bool IsInsideCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

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

}  // namespace

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

LoadOptions ToOptions(const hearth_options& from) {
  return {.memory_bytes = from.memory_bytes,
          .threads = from.threads,
          .context = from.context,
          .mode = TextOr(from.mode, "auto"),
          .parallel = from.parallel,
          .queue = from.queue,
          .plan = TextOr(from.plan, ""),
          .activation = TextOr(from.activation, ""),
          .chat_format = TextOr(from.chat_format, "")};
}

GenerateRequest ToRequest(const hearth_request* given) {
  hearth_request from;
  hearth_request_init(&from);
  if (given != nullptr) from = *given;
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

}  // namespace hearth::api
