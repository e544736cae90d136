// Where the answer to one HTTP request goes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/request_error.h"

namespace hearth::serve {

// Names and values of a head.
using HeaderFields = std::vector<std::pair<std::string, std::string>>;

struct Response {
  Status status = Status::kOk;
  std::string content_type = "application/json";
  std::string body;
  HeaderFields headers;  // further ones
};

// The response of an error, with what clients expect beside it (Retry-After, WWW-Authenticate).
Response ErrorResponse(const RequestError& error);

// One whole response, or a stream of events. Used on the server's thread.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void Send(Response response) = 0;

  // "text/event-stream", then any number of events, then the end.
  virtual void BeginStream() = 0;
  // Framed as a server-sent event by the connection. `name`: its "event" field, none where empty.
  virtual void SendEvent(std::string_view name, std::string_view data) = 0;
  virtual void EndStream() = 0;
};

// What is known of a request that the model works on, for the log.
struct ExchangeReport {
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> completion_tokens;  // so far
  int failure = 0;                           // the status of the error that it ended with; 0: none
};

// A request that is being worked on. Whoever holds the connection ends it when the client is gone.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Nobody waits for the answer any more: the reply is not used again.
  virtual void Abandon() = 0;
  // Also after its end.
  virtual ExchangeReport Report() const { return {}; }
};

}  // namespace hearth::serve
