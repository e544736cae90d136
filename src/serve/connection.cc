#include "serve/connection.h"

#include <fmt/format.h>

#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

namespace hearth::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// Heard while a request is answered: the next one, that a client sends ahead.
constexpr size_t kMostAhead = size_t{16} << 10;
constexpr size_t kReadBytes = 4096;
// Of a request that was refused before it was read. Its sender hears the answer only if what it
// sends is taken for a while.
constexpr size_t kMostDiscarded = size_t{16} << 20;
constexpr std::chrono::milliseconds kLingerTime{2000};

const char* Reason(Status status) {
  switch (status) {
    case Status::kOk:
      return "OK";
    case Status::kBadRequest:
      return "Bad Request";
    case Status::kUnauthorized:
      return "Unauthorized";
    case Status::kForbidden:
      return "Forbidden";
    case Status::kNotFound:
      return "Not Found";
    case Status::kMethodNotAllowed:
      return "Method Not Allowed";
    case Status::kRequestTimeout:
      return "Request Timeout";
    case Status::kPayloadTooLarge:
      return "Payload Too Large";
    case Status::kTooManyRequests:
      return "Too Many Requests";
    case Status::kHeaderTooLarge:
      return "Request Header Fields Too Large";
    case Status::kInternal:
      return "Internal Server Error";
    case Status::kUnavailable:
      return "Service Unavailable";
  }
  return "Unknown";
}

std::string Field(const boost::beast::string_view& value) { return {value.data(), value.size()}; }

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, Service& service, const ServerLimits& limits,
                       std::function<void()> on_close)
    : socket_(std::move(socket)),
      service_(service),
      limits_(limits),
      on_close_(std::move(on_close)),
      timer_(socket_.get_executor()) {
  ErrorCode ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

Connection::~Connection() { on_close_(); }

void Connection::Refuse() {
  head_ = {};
  SendError({Status::kUnavailable, "too many connections: try again later", "", "overloaded"});
}

void Connection::Abort() {
  if (exchange_) std::exchange(exchange_, nullptr)->Abandon();
  Close();
}

void Connection::SetDeadline(std::chrono::milliseconds time) {
  timed_out_ = false;
  const uint64_t number = ++deadline_;
  timer_.expires_after(time);
  timer_.async_wait([self = shared_from_this(), number](ErrorCode error) {
    if (error || number != self->deadline_) return;
    self->timed_out_ = true;
    if (self->state_ == State::kReading) {
      ErrorCode ignored;
      self->socket_.cancel(ignored);  // the read ends, and answers 408
    } else {
      self->Abort();
    }
  });
}

void Connection::WaitForRequest() {
  state_ = State::kIdle;
  if (buffer_.size() == 0) {
    SetDeadline(limits_.idle);
    return Listen();
  }
  if (!is_listening_) return ReadHead();
  // One read at a time: OnHeard goes on.
  ErrorCode ignored;
  socket_.cancel(ignored);
}

// Waits for what the client sends, or for its end, whether or not a request is being answered.
void Connection::Listen() {
  if (is_listening_ || buffer_.size() >= kMostAhead) return;
  is_listening_ = true;
  socket_.async_read_some(
      buffer_.prepare(kReadBytes),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->OnHeard(error, bytes); });
}

void Connection::OnHeard(ErrorCode error, size_t bytes) {
  is_listening_ = false;
  if (state_ == State::kClosed || state_ == State::kLingering) return;
  const bool was_interrupted = error == asio::error::operation_aborted && buffer_.size() > 0;
  if (error && !(was_interrupted && state_ == State::kIdle)) return Abort();
  buffer_.commit(bytes);
  if (state_ == State::kIdle) {
    ReadHead();
  } else {
    Listen();
  }
}

void Connection::ReadHead() {
  state_ = State::kReading;
  head_ = {};
  keep_alive_ = false;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
  parser_->body_limit(limits_.body_bytes);
  SetDeadline(limits_.request);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, size_t) { self->OnHead(error); });
}

// Answers what could not be read; true where there is nothing to go on with.
bool Connection::RefuseBadRead(ErrorCode error) {
  if (!error) return false;
  if (state_ == State::kClosed) return true;
  if (timed_out_) {
    SendError({Status::kRequestTimeout, "the request did not come to its end in time"});
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    SendError({Status::kHeaderTooLarge,
               fmt::format("the head of a request may have {} bytes", limits_.header_bytes)});
  } else if (error == http::error::body_limit) {
    SendError({Status::kPayloadTooLarge,
               fmt::format("the body of a request may have {} bytes", limits_.body_bytes)});
  } else if (error.category() == http::make_error_code(http::error::bad_version).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message) {
    SendError({Status::kBadRequest, "this is not HTTP/1.1 as it should be"});
  } else {
    Abort();
  }
  return true;
}

void Connection::OnHead(ErrorCode error) {
  if (RefuseBadRead(error)) return;
  const auto& message = parser_->get();
  head_ = {.method = Field(message.method_string()),
           .target = Field(message.target()),
           .authorization = Field(message[http::field::authorization]),
           .host = Field(message[http::field::host]),
           .origin = Field(message[http::field::origin])};
  try {
    service_.CheckHead(head_);
  } catch (const RequestError& refused) {
    // What follows an unread body would be taken for a request.
    keep_alive_ = parser_->is_done() && message.keep_alive();
    return SendError(refused);
  }
  if (message[http::field::expect] == "100-continue" && !parser_->is_done()) {
    to_write_ += "HTTP/1.1 100 Continue\r\n\r\n";
    Write();
  }
  ReadBody();
}

void Connection::ReadBody() {
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](ErrorCode error, size_t) { self->OnBody(error); });
}

void Connection::OnBody(ErrorCode error) {
  if (RefuseBadRead(error)) return;
  keep_alive_ = parser_->get().keep_alive();
  is_chunked_ = parser_->get().version() >= 11;
  state_ = State::kAnswering;
  ++deadline_;  // how long the answer takes is not the client's to say
  answer_complete_ = false;
  Listen();
  Handle();
}

void Connection::Handle() {
  std::string body = std::move(parser_->get().body());
  parser_.reset();
  auto exchange = service_.Handle(head_, std::move(body), shared_from_this());
  // The answer may have been sent already.
  if (!answer_complete_ && state_ == State::kAnswering) exchange_ = std::move(exchange);
}

void Connection::SendError(const RequestError& error) {
  state_ = State::kAnswering;
  Send(ErrorResponse(error));
}

void Connection::Send(Response response) {
  service_.metrics().CountResponse(Service::EndpointOf(head_.target),
                                   static_cast<int>(response.status));
  if (state_ != State::kAnswering) return;
  keep_alive_ = keep_alive_ && !service_.is_stopping();
  to_write_ += fmt::format(
      "HTTP/1.1 {} {}\r\nServer: hearth\r\nContent-Type: {}\r\n"
      "Content-Length: {}\r\nConnection: {}\r\n",
      static_cast<int>(response.status), Reason(response.status), response.content_type,
      response.body.size(), keep_alive_ ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) to_write_ += name + ": " + value + "\r\n";
  to_write_ += "\r\n" + response.body;
  answer_complete_ = true;
  Write();
}

void Connection::BeginStream() {
  service_.metrics().CountResponse(Service::EndpointOf(head_.target), 200);
  if (state_ != State::kAnswering) return;
  keep_alive_ = keep_alive_ && is_chunked_ && !service_.is_stopping();
  to_write_ += fmt::format(
      "HTTP/1.1 200 OK\r\nServer: hearth\r\nContent-Type: text/event-stream\r\n"
      "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n{}Connection: {}\r\n\r\n",
      is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keep_alive_ ? "keep-alive" : "close");
}

void Connection::SendEvent(std::string_view data) {
  if (state_ != State::kAnswering) return;
  const std::string event = fmt::format("data: {}\n\n", data);
  if (is_chunked_) {
    to_write_ += fmt::format("{:x}\r\n{}\r\n", event.size(), event);
  } else {
    to_write_ += event;
  }
  if (to_write_.size() > limits_.unsent_bytes) return Abort();
  Write();
}

void Connection::EndStream() {
  if (state_ != State::kAnswering) return;
  if (is_chunked_) to_write_ += "0\r\n\r\n";
  answer_complete_ = true;
  Write();
}

void Connection::Write() {
  if (is_writing_ || to_write_.empty()) return;
  is_writing_ = true;
  being_written_.clear();
  being_written_.swap(to_write_);
  if (state_ == State::kAnswering) SetDeadline(limits_.write);
  asio::async_write(
      socket_, asio::buffer(being_written_),
      [self = shared_from_this()](ErrorCode error, size_t) { self->OnWritten(error); });
}

void Connection::OnWritten(ErrorCode error) {
  is_writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return Abort();
  if (state_ != State::kAnswering) return;  // "100 Continue"
  ++deadline_;
  if (!to_write_.empty()) return Write();
  if (!answer_complete_) return;
  exchange_.reset();
  if (keep_alive_) {
    WaitForRequest();
  } else {
    Linger();
  }
}

// Closes so that the client can still read the answer: with bytes of it unread the system would
// throw the answer away.
void Connection::Linger() {
  state_ = State::kLingering;
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  SetDeadline(kLingerTime);
  if (is_listening_) socket_.cancel(ignored);
  Discard();
}

void Connection::Discard() {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](ErrorCode error, size_t bytes) {
                            self->discarded_ += bytes;
                            const bool is_over = error || self->discarded_ > kMostDiscarded;
                            if (self->state_ == State::kClosed) return;
                            if (is_over) return self->Close();
                            self->Discard();
                          });
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  ++deadline_;
  timer_.cancel();
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace hearth::serve
