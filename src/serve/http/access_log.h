// The log of answered requests, one line each:
//
//   2026-11-28T20:09:34.123Z 127.0.0.1 POST /v1/completions 200 bytes=532 ms=41.2 prompt=5
//   completion=16
//
// It names no key, no query and nothing of a body, and a client cannot forge a line: bytes of a
// method or a path that are not printable ASCII are written as \xNN.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/http_message.h"
#include "serve/reply.h"

namespace hearth::serve {

// What the log says of a request.
struct LoggedRequest {
  std::chrono::system_clock::time_point time;  // of its end
  std::string_view client;                     // an address
  std::string_view method, target;             // empty: they were not read
  int status = 0;                              // 0: no answer has begun
  uint64_t bytes_sent = 0;                     // of the answer, with its head
  double milliseconds = 0;                     // from its first byte to the last of the answer
  ExchangeReport exchange;
  bool is_aborted = false;  // the answer was not sent to its end
};

// Its line, without the end. Methods and paths that are long are cut.
std::string LogLine(const LoggedRequest& request);

// Writes lines to a file, and never waits for it: a line that a pipe or a terminal does not take at
// once is dropped, and the next one that is taken follows one that says how many were. Used on one
// thread.
class AccessLog {
 public:
  // `fd` stays the caller's, and as it is: others may share its settings.
  explicit AccessLog(int fd);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void Write(std::string_view line);
  uint64_t dropped_lines() const { return dropped_; }

 private:
  bool WriteRest();
  bool WriteWhole(std::string line);
  bool WriteDropped();

  int fd_;
  bool is_own_ = false;   // opened here, for writes that do not wait
  std::string rest_;      // of a line that was taken in part
  uint64_t dropped_ = 0;  // since that was last said
};

// The request that a connection is at, for the log; does nothing where there is none.
class RequestTrace {
 public:
  // log: null, or outlives it.
  RequestTrace(AccessLog* log, std::string client) : log_(log), client_(std::move(client)) {}

  // Its first byte has come.
  void Begin();
  void SetStatus(int status) { status_ = status; }
  void AddSent(size_t bytes) { bytes_sent_ += bytes; }
  void End(const RequestHead& head, const ExchangeReport& exchange, bool is_aborted);

 private:
  AccessLog* log_;
  std::string client_;
  std::chrono::steady_clock::time_point begin_;
  int status_ = 0;
  uint64_t bytes_sent_ = 0;
};

}  // namespace hearth::serve
