#include "serve/request_error.h"

#include "serve/json_fields.h"

namespace hearth::serve {
namespace {

const char* TypeOf(Status status) {
  switch (status) {
    case Status::kUnauthorized:
      return "authentication_error";
    case Status::kForbidden:
      return "permission_error";
    case Status::kTooManyRequests:
      return "rate_limit_error";
    case Status::kInternal:
    case Status::kUnavailable:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

nlohmann::ordered_json OrNull(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

constexpr char kContextWords[] = "This model's maximum context length is";

// What the request calls a field of the model's.
std::string OwnName(const std::string& field, const RequestNames& names) {
  constexpr std::string_view kMessages = "messages";
  if (field == "adapters") return "lora";
  if (field == "json_schema") return names.json_schema;
  if (field == "prompt") return names.prompt;
  if (field == kMessages) return names.messages;
  const bool is_of_one = field.starts_with(kMessages);
  return is_of_one && !names.has_same_messages ? names.messages : field;
}

}  // namespace

std::string RequestError::ToJson() const {
  const Json document = {{"error",
                          {{"message", what()},
                           {"type", TypeOf(status_)},
                           {"param", OrNull(param_)},
                           {"code", OrNull(code_)}}}};
  return JsonText(document);
}

RequestError Overloaded() {
  return {Status::kUnavailable,
          "the server holds as many bodies and answers as it may: try again later", "",
          "overloaded"};
}

RequestError FromModel(const api::Error& error, const RequestNames& names) {
  std::string words = error.what();
  std::string field = error.field();
  const std::string own = OwnName(field, names);
  if (own != field) {
    if (words.starts_with(field)) words.replace(0, field.size(), own);
    // Where a context is full the sentence names it too.
    const std::string named = field == "messages" ? "the messages have" : "the " + field + " has";
    const size_t at = words.find(named);
    if (at != std::string::npos) words.replace(at, named.size(), "the " + own + " has");
    field = own;
  }
  switch (error.code()) {
    case api::ErrorCode::kContextFull: {
      // Clients look for how the sentence begins; the field is said beside it.
      const size_t sentence = words.find(kContextWords);
      return {Status::kBadRequest, sentence == std::string::npos ? words : words.substr(sentence),
              field, "context_length_exceeded"};
    }
    case api::ErrorCode::kInvalidArgument:
    case api::ErrorCode::kUnsupported:
      return {Status::kBadRequest, words, field, field.empty() ? "" : "invalid_value"};
    case api::ErrorCode::kBusy:
      return {Status::kTooManyRequests, error.what(), "", "queue_full"};
    case api::ErrorCode::kIo:
    case api::ErrorCode::kCorrupt:
      return {Status::kUnavailable, error.what(), "", "model_fault"};
    case api::ErrorCode::kCancelled:
    case api::ErrorCode::kOutOfBudget:
      return {Status::kUnavailable, error.what()};
    case api::ErrorCode::kNotFound:
    case api::ErrorCode::kInternal:
      break;
  }
  return {Status::kInternal, error.what()};
}

}  // namespace hearth::serve
