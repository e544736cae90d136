// Why a request is not served, in the words of the OpenAI API.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "hearth/hearth.hpp"

namespace hearth::serve {

// HTTP status codes that are used here.
enum class Status {
  kOk = 200,
  kNoContent = 204,
  kBadRequest = 400,
  kUnauthorized = 401,
  kForbidden = 403,
  kNotFound = 404,
  kMethodNotAllowed = 405,
  kRequestTimeout = 408,
  kPayloadTooLarge = 413,
  kUnsupportedMediaType = 415,
  kExpectationFailed = 417,
  kTooManyRequests = 429,
  kHeaderTooLarge = 431,
  kInternal = 500,
  kNotImplemented = 501,
  kUnavailable = 503,
};

// what() is the message.
class RequestError : public std::runtime_error {
 public:
  // param: the field of the request concerned; code: a word for programs. Both may be empty.
  RequestError(Status status, const std::string& message, std::string param = "",
               std::string code = "")
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}

  Status status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

  // Of 405: the method that the path takes.
  const std::string& allowed() const { return allowed_; }
  void set_allowed(std::string method) { allowed_ = std::move(method); }

  // {"error": {"message", "type", "param", "code"}}; type follows from the status.
  std::string ToJson() const;

 private:
  Status status_;
  std::string param_;
  std::string code_;
  std::string allowed_;
};

// What clients hold together is as much as the server gives them (serve/allowance.h): 503.
RequestError Overloaded();

// What a request calls what the model refuses.
struct RequestNames {
  std::string prompt = "prompt";
  std::string messages = "messages";
  std::string json_schema = "response_format";
  // Its messages are those of the model, number for number; else only the list can be named.
  bool has_same_messages = true;
};

// What the model said no with; param is the field of the request that it is about. A fault of its
// file or of a device is 503: the next request may work.
RequestError FromModel(const api::Error& error, const RequestNames& names = {});

}  // namespace hearth::serve
