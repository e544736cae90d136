// One client: reads its requests, one after the other, and writes their answers, whole or as
// server-sent events (event_stream.h).
//
//   idle -> reading -> answering -> idle ... -> closed
//
// While a request is answered the connection is listened to: a client that goes away, or closes its
// half of it, ends the generation. So does one that sends more after its request than is listened
// to, because its end could not be heard.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/allowance.h"
#include "serve/http/access_log.h"
#include "serve/http/deadline.h"
#include "serve/http/http_message.h"
#include "serve/http/outbox.h"
#include "serve/http/places.h"
#include "serve/http/server.h"
#include "serve/reply.h"
#include "serve/service.h"

namespace hearth::serve {

class Connection : public Reply, public std::enable_shared_from_this<Connection> {
 public:
  // on_close is called once, from the destructor.
  Connection(boost::asio::ip::tcp::socket socket, Service& service, const ServerLimits& limits,
             RequestTrace trace, std::function<void()> on_close);
  ~Connection() override;

  // A guest may only GET /health; whatever else it asks gets 503.
  void Start(std::unique_ptr<Place> place);
  bool is_answering() const { return state_ == State::kAnswering; }
  // Ends what is under way, with `error` as the answer, or as the last event of a stream.
  void End(const RequestError& error);
  // The same without a word.
  void Abort();

  void Send(Response response) override;
  void BeginStream() override;
  void SendEvent(std::string_view name, std::string_view data) override;
  void EndStream() override;

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using ErrorCode = boost::system::error_code;
  // An exchange with the service, and what is known of it once it is over.
  struct Work {
    bool is_on() const { return exchange != nullptr; }
    // Ends the exchange, and keeps what is known of it for the log.
    void Drop();
    std::shared_ptr<Exchange> exchange;
    ExchangeReport report;
  };
  // What the body of a request and its answer take of the server's memory.
  struct HeldMemory {
    explicit HeldMemory(const std::shared_ptr<Allowance>& allowance)
        : body(allowance), answer(allowance) {}
    // To be called after what was held has been freed: much of it goes back to the system too.
    void GiveBack();
    AllowanceShare body, answer;
  };
  enum class State { kIdle, kReading, kAnswering, kLingering, kClosed };

  void WaitForRequest();
  void GoOn();
  void Listen();
  void OnHeard(ErrorCode error, size_t bytes);
  void ReadHead();
  void OnHead(ErrorCode error);
  void CheckHead();
  void OnBody(ErrorCode error);
  bool RefuseBadRead(ErrorCode error);
  void SendError(const RequestError& error);
  void Write();
  void WriteSome();
  void OnWritten(ErrorCode error, size_t bytes);
  void Linger();
  void Discard();
  void Close();
  void SetState(State state);
  void RefuseLater(const RequestError& error);
  void SetDeadline(std::chrono::milliseconds time);
  void SendInStream(std::string_view text);
  void WaitInStream();

  boost::asio::ip::tcp::socket socket_;
  Service& service_;
  const ServerLimits& limits_;
  RequestTrace trace_;
  std::function<void()> on_close_;
  std::unique_ptr<Place> place_;
  Deadline deadline_;
  Deadline silence_;  // of a stream
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  RequestHead head_;
  State state_ = State::kIdle;
  bool is_listening_ = false;    // a read is pending that belongs to no parser
  bool is_half_closed_ = false;  // nothing more comes from the client
  bool keep_alive_ = false;      // after this answer
  bool is_chunked_ = false;      // the stream; else it ends with the connection
  bool is_streaming_ = false;    // the answer is a stream, and has begun
  bool answer_complete_ = false;
  Outbox outbox_;
  HeldMemory held_;  // while a request is answered
  Work work_;        // on the request
  size_t discarded_ = 0;
};

}  // namespace hearth::serve
