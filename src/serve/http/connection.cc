#include "serve/http/connection.h"

#include <fmt/format.h>
#include <malloc.h>

#include <boost/beast/http/read.hpp>
#include <utility>

#include "serve/http/event_stream.h"

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

// Shares of the server's memory from which on the system gets it back at once.
constexpr size_t kMuchMemory = size_t{1} << 20;
// Answers below are not counted: they fit into what any connection may take.
constexpr size_t kShortAnswer = size_t{4} << 10;
// In the system's buffer of a connection; it takes twice as much.
constexpr int kSystemUnsentBytes = 64 << 10;
// A guest may ask how the server is, and gets this much time for it.
constexpr std::chrono::milliseconds kGuestTime{2000};

// Takes the empty lines that lie before a request (RFC 9112 section 2.2); true where more is there.
bool SkipEmptyLines(boost::beast::flat_buffer& buffer) {
  const auto bytes = buffer.data();
  const auto* text = static_cast<const char*>(bytes.data());
  size_t empty = 0;
  while (empty < bytes.size() && (text[empty] == '\r' || text[empty] == '\n')) ++empty;
  buffer.consume(empty);
  return buffer.size() > 0;
}

}  // namespace

void Connection::Work::Drop() {
  if (!exchange) return;
  report = exchange->Report();
  std::exchange(exchange, nullptr)->Abandon();
}

void Connection::HeldMemory::GiveBack() {
  const bool is_much = body.bytes() + answer.bytes() >= kMuchMemory;
  body.Resize(0);
  answer.Resize(0);
  if (is_much) malloc_trim(0);
}

Connection::Connection(asio::ip::tcp::socket socket, Service& service, const ServerLimits& limits,
                       RequestTrace trace, std::function<void()> on_close)
    : socket_(std::move(socket)),
      service_(service),
      limits_(limits),
      trace_(std::move(trace)),
      on_close_(std::move(on_close)),
      deadline_(socket_.get_executor()),
      silence_(socket_.get_executor()),
      held_(service.allowance()) {
  ErrorCode ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // The system takes as much as it likes for a client that does not read, unless told.
  socket_.set_option(asio::socket_base::send_buffer_size(kSystemUnsentBytes), ignored);
}

Connection::~Connection() { on_close_(); }

void Connection::Start(std::unique_ptr<Place> place) {
  place_ = std::move(place);
  WaitForRequest();
}

void Connection::SetState(State state) {
  state_ = state;
  if (!place_) return;  // it has been closed
  switch (state) {
    case State::kIdle:
    case State::kLingering:
      return place_->SetIdle();
    case State::kReading:
      return place_->SetReading();
    case State::kAnswering:
      return place_->SetAnswering();
    case State::kClosed:
      return;
  }
}

void Connection::End(const RequestError& error) {
  if (!work_.is_on()) {
    if (!is_answering()) Abort();
    return;
  }
  work_.Drop();
  work_.report.failure = static_cast<int>(error.status());
  if (is_streaming_) {
    SendEvent("", error.ToJson());
    EndStream();
  } else {
    Send(ErrorResponse(error));
  }
}

void Connection::Abort() {
  work_.Drop();
  if (is_answering()) trace_.End(head_, work_.report, true);
  Close();
}

void Connection::SetDeadline(std::chrono::milliseconds time) {
  deadline_.Set(time, [self = shared_from_this()] {
    if (self->state_ == State::kReading) {
      ErrorCode ignored;
      self->socket_.cancel(ignored);  // the read ends, and answers 408
    } else {
      self->Abort();
    }
  });
}

void Connection::WaitForRequest() {
  SetState(State::kIdle);
  SetDeadline(place_->is_guest() ? kGuestTime : limits_.idle);
  if (!is_listening_) return GoOn();
  // One read at a time: OnHeard goes on.
  ErrorCode ignored;
  if (buffer_.size() > 0) socket_.cancel(ignored);
}

// With what has come for the next request; no read is pending.
void Connection::GoOn() {
  if (SkipEmptyLines(buffer_)) return ReadHead();
  if (is_half_closed_) return Close();
  Listen();
}

// Waits for what the client sends, or for its end, whether or not a request is being answered.
void Connection::Listen() {
  if (is_listening_ || is_half_closed_) return;
  if (buffer_.size() >= kMostAhead) {
    if (work_.is_on()) Abort();
    return;
  }
  is_listening_ = true;
  socket_.async_read_some(
      buffer_.prepare(kReadBytes),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->OnHeard(error, bytes); });
}

void Connection::OnHeard(ErrorCode error, size_t bytes) {
  is_listening_ = false;
  if (state_ == State::kClosed || state_ == State::kLingering) return;
  if (error == asio::error::eof && state_ == State::kAnswering && !work_.is_on()) {
    is_half_closed_ = true;  // what it has asked for is answered
    return;
  }
  const bool was_interrupted = error == asio::error::operation_aborted && buffer_.size() > 0;
  if (error && !(was_interrupted && state_ == State::kIdle)) return Abort();
  buffer_.commit(bytes);
  if (state_ == State::kIdle) {
    GoOn();
  } else {
    Listen();
  }
}

void Connection::ReadHead() {
  SetState(State::kReading);
  head_ = {};
  work_.report = {};
  keep_alive_ = false;
  trace_.Begin();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
  parser_->body_limit(limits_.body_bytes);
  SetDeadline(place_->is_guest() ? kGuestTime : limits_.request);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](ErrorCode error, size_t) { self->OnHead(error); });
}

// Answers what could not be read; true where there is nothing to go on with.
bool Connection::RefuseBadRead(ErrorCode error) {
  if (!error) return false;
  if (state_ == State::kClosed) return true;
  if (deadline_.has_passed()) {
    SendError({Status::kRequestTimeout, "the request did not come to its end in time"});
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    SendError({Status::kHeaderTooLarge,
               fmt::format("the head of a request may have {} bytes", limits_.header_bytes)});
  } else if (error == http::error::body_limit) {
    // Of a length that is too large the head says so itself, and has not been taken yet.
    head_ = ReadRequestHead(parser_->get());
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
  head_ = ReadRequestHead(message);
  try {
    CheckHead();
  } catch (const RequestError& refused) {
    if (refused.status() == Status::kUnauthorized) return RefuseLater(refused);
    return SendError(refused);
  }
  if (ExpectsContinue(message) && !parser_->is_done()) {
    outbox_.Add("HTTP/1.1 100 Continue\r\n\r\n");
    Write();
  }
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](ErrorCode failed, size_t) { self->OnBody(failed); });
}

// Keys are guessed no faster than connections come: each guess costs one for a while, which is
// given up where others need its place.
void Connection::RefuseLater(const RequestError& error) {
  keep_alive_ = false;
  SetState(State::kIdle);
  deadline_.Set(limits_.wrong_key, [self = shared_from_this(), error] {
    if (self->state_ == State::kIdle) self->SendError(error);
  });
}

// Throws RequestError for a request that is refused before its body is read.
void Connection::CheckHead() {
  const auto& message = parser_->get();
  CheckRequestHead(message);
  if (place_->is_guest() && PathOfTarget(head_.target) != "/health") {
    throw RequestError(Status::kUnavailable, "too many connections: try again later", "",
                       "overloaded");
  }
  // What follows an unread body would be taken for a request.
  keep_alive_ = parser_->is_done() && message.keep_alive();
  service_.gate().CheckHead(head_);
  if (parser_->is_done()) return;
  const auto length = parser_->content_length();
  if (held_.body.Resize(length ? static_cast<size_t>(*length) : limits_.body_bytes)) return;
  throw Overloaded();
}

void Connection::OnBody(ErrorCode error) {
  if (RefuseBadRead(error)) return;
  held_.body.Resize(parser_->get().body().size());
  keep_alive_ = parser_->get().keep_alive();
  is_chunked_ = parser_->get().version() >= 11;
  SetState(State::kAnswering);
  deadline_.Lift();  // how long the answer takes is not the client's to say
  answer_complete_ = false;
  is_streaming_ = false;
  Listen();
  std::string body = std::move(parser_->get().body());
  parser_.reset();
  auto exchange = service_.Handle(head_, std::move(body), shared_from_this());
  // The answer may have been sent already.
  if (answer_complete_ || state_ != State::kAnswering) return;
  work_.exchange = std::move(exchange);
  if (work_.is_on() && is_half_closed_) return Abort();
  Listen();
}

void Connection::SendError(const RequestError& error) {
  SetState(State::kAnswering);
  Send(ErrorResponse(error));
}

void Connection::Send(Response response) {
  if (state_ == State::kAnswering && response.body.size() > kShortAnswer &&
      !held_.answer.Resize(response.body.size())) {
    response = ErrorResponse(Overloaded());
  }
  service_.metrics().CountResponse(Gate::CountedPath(head_.target),
                                   static_cast<int>(response.status));
  if (state_ != State::kAnswering) return;
  trace_.SetStatus(static_cast<int>(response.status));
  for (auto& field : service_.gate().origins().FieldsFor(head_.origin)) {
    response.headers.push_back(std::move(field));
  }
  keep_alive_ = keep_alive_ && !service_.gate().is_stopping();
  outbox_.Add(ResponseHead(response, keep_alive_));
  if (!head_.is_head()) outbox_.Add(response.body);
  answer_complete_ = true;
  Write();
}

void Connection::BeginStream() {
  service_.metrics().CountResponse(Gate::CountedPath(head_.target), 200);
  if (state_ != State::kAnswering) return;
  trace_.SetStatus(static_cast<int>(Status::kOk));
  is_streaming_ = true;
  keep_alive_ = keep_alive_ && is_chunked_ && !service_.gate().is_stopping();
  outbox_.Add(
      StreamHead(is_chunked_, keep_alive_, service_.gate().origins().FieldsFor(head_.origin)));
  Write();
  WaitInStream();
}

void Connection::SendEvent(std::string_view name, std::string_view data) {
  if (state_ != State::kAnswering) return;
  SendInStream(FrameEvent(name, data));
}

void Connection::SendInStream(std::string_view text) {
  if (is_chunked_) {
    outbox_.Add(FrameChunk(text));
  } else {
    outbox_.Add(text);
  }
  if (outbox_.waiting_bytes() > limits_.unsent_bytes) return Abort();
  Write();
  WaitInStream();
}

// Clients and proxies take a long silence for the end: a comment, which clients skip, tells them
// that the answer still waits or is being computed.
void Connection::WaitInStream() {
  silence_.Set(limits_.silence, [self = shared_from_this()] {
    if (self->state_ != State::kAnswering || self->answer_complete_) return;
    // A client that takes nothing needs no more to take.
    if (self->outbox_.is_writing()) return self->WaitInStream();
    self->SendInStream(FrameComment("the answer is on its way"));
  });
}

void Connection::EndStream() {
  if (state_ != State::kAnswering) return;
  if (is_chunked_) outbox_.Add(kLastChunk);
  answer_complete_ = true;
  silence_.Stop();
  Write();
}

void Connection::Write() {
  if (outbox_.Begin()) WriteSome();
}

void Connection::WriteSome() {
  if (state_ == State::kAnswering) SetDeadline(limits_.write);
  socket_.async_write_some(outbox_.rest(),
                           [self = shared_from_this()](ErrorCode error, size_t bytes) {
                             self->OnWritten(error, bytes);
                           });
}

void Connection::OnWritten(ErrorCode error, size_t bytes) {
  outbox_.CountWritten(bytes);
  trace_.AddSent(bytes);
  const bool is_closed = state_ == State::kClosed;
  if (!error && !is_closed && outbox_.has_rest()) return WriteSome();
  outbox_.End();
  if (is_closed) return;
  if (error) return Abort();
  if (state_ != State::kAnswering) return;  // "100 Continue"
  deadline_.Lift();
  if (outbox_.has_waiting()) return Write();
  if (!answer_complete_) return;
  if (work_.is_on()) work_.report = work_.exchange->Report();
  work_.exchange.reset();
  trace_.End(head_, work_.report, false);
  outbox_.DropWritten();
  held_.GiveBack();
  if (keep_alive_) {
    WaitForRequest();
  } else {
    Linger();
  }
}

// Closes so that the client can still read the answer: with bytes of it unread the system would
// throw the answer away.
void Connection::Linger() {
  SetState(State::kLingering);
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
  SetState(State::kClosed);
  place_.reset();
  outbox_.DropWaiting();
  if (!outbox_.is_writing()) {
    outbox_.DropWritten();
    held_.GiveBack();
  }
  deadline_.Stop();
  silence_.Stop();
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace hearth::serve
