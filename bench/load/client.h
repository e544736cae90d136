// Clients in closed loops: each asks, reads its stream to the end, and asks again.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "load/samples.h"
#include "load/wire.h"
#include "load/workload.h"

namespace hearth::load {

using Clock = std::chrono::steady_clock;
using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;

// Where requests go, and how.
struct Target {
  Url url;
  std::string key;  // empty: none
  boost::asio::ip::tcp::resolver::results_type endpoints;
  std::chrono::seconds timeout{60};     // for anything to come
  int64_t requests_per_connection = 0;  // 0: as many as the server lets
};
HttpRequest MakeRequest(const Target& target, boost::beast::http::verb verb,
                        const std::string& path, std::string body);

// Only what happens from `begin` on and before `end` counts; at `end` no client asks again.
struct Window {
  Clock::time_point start, begin, end;
  bool Holds(Clock::time_point when) const { return when >= begin && when < end; }
};

struct ClientResult {
  int64_t completed = 0;  // requests
  int64_t refused = 0;    // 429
  double refused_wait_seconds = 0;
  std::map<std::string, int64_t> errors;  // by kind
  int64_t tokens = 0;                     // that came
  int64_t prompt_tokens = 0;              // of completed requests
  int64_t cached_tokens = 0;              // of them, not computed again
  Samples first_token;                    // from sending to the first text
  Samples between_tokens;                 // from a text to the next of the same request
  Samples request;                        // from sending to the end
  bool is_asking = false;
};

// A connection that is opened when it is needed.
class Link {
 public:
  explicit Link(const Target& target) : target_(target) {}
  // Opens it unless it is. Throws boost::system::system_error.
  boost::asio::awaitable<void> Open();
  void Drop() { stream_.reset(); }
  // The next operation has target.timeout.
  boost::beast::tcp_stream& stream();
  boost::beast::flat_buffer& buffer() { return buffer_; }
  // A request is done; drops the connection where it has served its turn.
  void Finish(bool keep_alive);

 private:
  const Target& target_;
  std::unique_ptr<boost::beast::tcp_stream> stream_;
  boost::beast::flat_buffer buffer_;
  int64_t served_ = 0;
};

// Runs until the window ends and the last request has. Never throws; `result` must outlive it.
boost::asio::awaitable<void> RunClient(const Target& target, const Window& window,
                                       Workload workload, ClientResult& result);

}  // namespace hearth::load
