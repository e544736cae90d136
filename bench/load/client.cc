#include "load/client.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"

namespace hearth::load {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using nlohmann::json;

// Behind an error, so that a server that is gone is not asked a thousand times a second.
constexpr std::chrono::milliseconds kPauseAfterError(500);
constexpr std::chrono::seconds kLongestRetryAfter(60);

double SecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

asio::awaitable<void> Sleep(Clock::duration time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

std::string TextOf(const json& choice) {
  if (choice.contains("text")) return choice["text"].get<std::string>();
  const json delta = choice.value("delta", json::object());
  const auto content = delta.find("content");
  return content != delta.end() && content->is_string() ? content->get<std::string>() : "";
}

// "model_fault" of {"error": {"code": "model_fault"}}.
std::string CodeOf(const std::string& body) {
  const json document = json::parse(body, nullptr, false);
  if (!document.is_object() || !document.contains("error")) return "";
  const json& error = document["error"];
  for (const char* field : {"code", "type"}) {
    if (error.is_object() && error.contains(field) && error[field].is_string()) {
      return error[field].get<std::string>();
    }
  }
  return "";
}

// One answer on its way: what its events say.
class Answer {
 public:
  Answer(const Window& window, ClientResult& result) : window_(window), result_(result) {}

  void OnEvent(std::string_view data) {
    if (data == "[DONE]") {
      is_done_ = true;
      return;
    }
    const json event = json::parse(data, nullptr, false);
    if (!event.is_object()) return SetError("bad event");
    if (event.contains("error")) return SetError("stream: " + CodeOf(std::string(data)));
    const auto choices = event.find("choices");
    if (choices != event.end() && !choices->empty() && !TextOf(choices->front()).empty()) OnText();
    const auto usage = event.find("usage");
    if (usage != event.end() && usage->is_object()) OnUsage(*usage);
  }

  bool is_done() const { return is_done_; }
  const std::string& error() const { return error_; }
  void SetError(const std::string& kind) {
    if (error_.empty()) error_ = kind;
  }

  // It has come as a whole.
  void Complete() {
    const auto now = Clock::now();
    if (!window_.Holds(now)) return;
    ++result_.completed;
    result_.request.Add(SecondsBetween(sent_, now));
    result_.prompt_tokens += prompt_tokens_;
    result_.cached_tokens += cached_tokens_;
  }

 private:
  void OnText() {
    const auto now = Clock::now();
    if (window_.Holds(now)) {
      if (texts_ == 0) {
        result_.first_token.Add(SecondsBetween(sent_, now));
      } else {
        result_.between_tokens.Add(SecondsBetween(last_, now));
      }
      ++result_.tokens;
    }
    ++texts_;
    last_ = now;
  }

  void OnUsage(const json& usage) {
    // A text may be of several tokens.
    const int64_t more = usage.value("completion_tokens", int64_t{0}) - texts_;
    if (more > 0 && window_.Holds(Clock::now())) result_.tokens += more;
    prompt_tokens_ = usage.value("prompt_tokens", int64_t{0});
    const json details = usage.value("prompt_tokens_details", json::object());
    if (details.is_object()) cached_tokens_ = details.value("cached_tokens", int64_t{0});
  }

  const Window& window_;
  ClientResult& result_;
  const Clock::time_point sent_ = Clock::now();
  Clock::time_point last_;
  int64_t texts_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  bool is_done_ = false;
  std::string error_;
};

// How an attempt ended: empty error and no pause, where it was answered.
struct Attempt {
  std::string error;
  std::optional<std::chrono::seconds> retry_after;
};

Attempt Refusal(const http::response<http::string_body>& response) {
  const auto status = response.result_int();
  if (status == 429) {
    const std::string after(response[http::field::retry_after]);
    char* end = nullptr;
    const long seconds = std::strtol(after.c_str(), &end, 10);
    if (after.empty() || *end != '\0' || seconds < 0) return {"429 without Retry-After", {}};
    return {"", std::min(std::chrono::seconds(seconds), kLongestRetryAfter)};
  }
  return {"http " + std::to_string(status) + " " + CodeOf(response.body()), {}};
}

// Sends a request and reads its answer. Throws boost::system::system_error, nlohmann's errors, and
// hearth::Error.
asio::awaitable<Attempt> Ask(Link& link, const HttpRequest& request, const Window& window,
                             ClientResult& result) {
  co_await link.Open();
  Answer answer(window, result);
  co_await http::async_write(link.stream(), request, asio::use_awaitable);
  http::response_parser<http::string_body> parser;
  // Not boost::none, which Beast of Boost 1.74 takes for less than any length.
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  co_await http::async_read_header(link.stream(), link.buffer(), parser, asio::use_awaitable);
  const bool is_stream = parser.get().result_int() == 200;
  EventReader events([&](std::string_view data) { answer.OnEvent(data); });
  while (!parser.is_done()) {
    co_await http::async_read_some(link.stream(), link.buffer(), parser, asio::use_awaitable);
    if (!is_stream) continue;
    events.Take(parser.get().body());
    parser.get().body().clear();
  }
  link.Finish(parser.get().keep_alive());
  if (!is_stream) co_return Refusal(parser.get());
  if (answer.error().empty() && !answer.is_done()) answer.SetError("ended before [DONE]");
  if (answer.error().empty()) answer.Complete();
  co_return Attempt{answer.error(), {}};
}

// The same; what is thrown becomes an error.
asio::awaitable<Attempt> TryToAsk(Link& link, const HttpRequest& request, const Window& window,
                                  ClientResult& result) {
  std::string error;
  try {
    Attempt attempt = co_await Ask(link, request, window, result);
    if (attempt.error.empty()) co_return attempt;
    error = attempt.error;
  } catch (const boost::system::system_error& thrown) {
    error = thrown.code() == beast::error::timeout ? "timeout"
                                                   : "connection: " + thrown.code().message();
  } catch (const std::exception& thrown) {
    error = std::string("bad answer: ") + thrown.what();
  }
  link.Drop();
  co_return Attempt{error, {}};
}

}  // namespace

HttpRequest MakeRequest(const Target& target, http::verb verb, const std::string& path,
                        std::string body) {
  HttpRequest request{verb, path, 11};
  request.set(http::field::host, target.url.host_header());
  request.set(http::field::user_agent, "hearth_load");
  if (!target.key.empty()) request.set(http::field::authorization, "Bearer " + target.key);
  if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  return request;
}

asio::awaitable<void> Link::Open() {
  if (stream_) co_return;
  buffer_.clear();
  served_ = 0;
  stream_ = std::make_unique<beast::tcp_stream>(co_await asio::this_coro::executor);
  co_await stream().async_connect(target_.endpoints, asio::use_awaitable);
  stream_->socket().set_option(asio::ip::tcp::no_delay(true));
}

beast::tcp_stream& Link::stream() {
  stream_->expires_after(target_.timeout);
  return *stream_;
}

void Link::Finish(bool keep_alive) {
  ++served_;
  if (!keep_alive || served_ == target_.requests_per_connection) Drop();
}

asio::awaitable<void> RunClient(const Target& target, const Window& window, Workload workload,
                                ClientResult& result) {
  Link link(target);
  while (Clock::now() < window.end) {
    const Workload::Request next = workload.Next();
    const HttpRequest request = MakeRequest(target, http::verb::post, next.path, next.body);
    Attempt attempt;
    do {
      result.is_asking = true;
      attempt = co_await TryToAsk(link, request, window, result);
      result.is_asking = false;
      if (!attempt.error.empty()) {
        ++result.errors[attempt.error];
        co_await Sleep(kPauseAfterError);
      } else if (attempt.retry_after) {
        ++result.refused;
        const auto pause = std::min<Clock::duration>(
            *attempt.retry_after, std::max(window.end - Clock::now(), Clock::duration::zero()));
        result.refused_wait_seconds += std::chrono::duration<double>(pause).count();
        co_await Sleep(pause);
      }
    } while (attempt.retry_after && Clock::now() < window.end);
  }
}

}  // namespace hearth::load
