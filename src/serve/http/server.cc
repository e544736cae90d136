#include "serve/http/server.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <csignal>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/error.h"
#include "serve/http/connection.h"
#include "serve/http/places.h"
#include "serve/models/several_models.h"

namespace hearth::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using SystemError = boost::system::error_code;

constexpr std::chrono::milliseconds kStopPoll{10};
// Between looks for models that were at rest for long enough.
constexpr std::chrono::milliseconds kTidyTime{500};
// After the grace: for answers to those whose requests were ended.
constexpr std::chrono::milliseconds kLastWords{500};
// Before the next try where the system has no more descriptors.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Descriptors for all but connections.
constexpr rlim_t kOtherFiles = 64;
// The system gets back at once what such buffers took. (Unless told, the library asks for memory in
// larger and larger pieces, and keeps them.)
constexpr int kLargeBuffer = 256 << 10;

asio::ip::address ParseAddress(const std::string& host) {
  SystemError error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    throw Error(hearth::ErrorCode::kInvalidArgument, Field{"host"}, "address",
                "an IP address or localhost", Printable(host));
  }
  return address;
}

void Listen(const ServerOptions& options, tcp::acceptor& acceptor) {
  const tcp::endpoint endpoint(ParseAddress(options.host), options.port);
  try {
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(asio::socket_base::max_listen_connections);
  } catch (const boost::system::system_error& error) {
    throw Error(hearth::ErrorCode::kIo, fmt::format("{} port {}", options.host, options.port),
                "cannot listen: " + error.code().message());
  }
}

// As many open files as the connections need, where the system permits; how many connections that
// lets be.
int AllowConnections(const ServerOptions& options) {
  const int wanted = options.limits.connections;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t needed = static_cast<rlim_t>(wanted) + kOtherFiles;
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= needed) return wanted;
  const rlim_t others = std::min(kOtherFiles, limit.rlim_cur / 2);
  const int usable = static_cast<int>(std::max<rlim_t>(limit.rlim_cur - others, 1));
  if (options.warn) {
    options.warn(
        fmt::format("the system permits {} open files, so that at most {} clients are connected at "
                    "once instead "
                    "of {}: raise the limit (ulimit -n)",
                    limit.rlim_cur, usable, wanted));
  }
  return usable;
}

Places PlacesFor(int connections) { return {connections, (connections + 1) / 2}; }

// Lets the threads that serve connections and compute answers go first: what runs beside them may
// be as much as anybody likes to send.
void StepBack() {
  constexpr int kNice = 5;
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread, on Linux; again and again is the same
}

ServiceOptions ServiceOptionsOf(const ServerOptions& options) {
  return {.gate = {.keys = options.keys,
                   .local_hosts_only = options.keys.empty() && !options.allow_no_key &&
                                       ParseAddress(options.host).is_loopback(),
                   .cors = options.cors},
          .model_name = options.model_name,
          .strict_model = options.strict_model,
          .lenient = options.lenient,
          .held_bytes = options.limits.held_bytes};
}

class Server {
 public:
  explicit Server(const ServerOptions& options)
      : options_(options),
        limits_(options.limits),
        places_(PlacesFor(AllowConnections(options))),
        acceptor_(io_),
        signals_(io_, SIGTERM, SIGINT, SIGHUP),
        stop_timer_(io_) {
    Listen(options_, acceptor_);
  }

  void Use(api::Model& model) {
    service_ = std::make_unique<Service>(model, ServiceOptionsOf(options_), OnServer(), Beside());
  }
  void Use(ModelSource& source, const SharingOptions& sharing,
           const std::function<void(const std::string&)>& tell) {
    loader_.emplace(1);
    const PostFn load = [this](std::function<void()> run) { asio::post(*loader_, std::move(run)); };
    service_ = std::make_unique<Service>(
        [&](const ServiceContext& shared) {
          return std::make_unique<SeveralModels>(source, sharing, shared, load, tell);
        },
        ServiceOptionsOf(options_), OnServer(), Beside());
  }

  std::chrono::steady_clock::time_point grace_end() const { return grace_end_; }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  // Throws api::Error where what must be loaded first cannot be.
  void Run(const std::function<void(uint16_t port)>& on_listening) {
    signals_.async_wait([this](SystemError error, int) {
      if (!error) Stop();
    });
    service_->host().Prepare([this, &on_listening](const RequestError* failure) {
      if (failure != nullptr) {
        failure_ = *failure;
        return End();
      }
      if (service_->gate().is_stopping()) return;
      on_listening(port());
      Accept();
      Tidy();
    });
    RunLoop();
    service_->host().Close(grace_end_);
    if (failure_) throw api::Error(api::ErrorCode::kInvalidArgument, failure_->what());
  }

 private:
  PostFn OnServer() {
    return [this](std::function<void()> work) { asio::post(io_, std::move(work)); };
  }
  PostFn Beside() {
    return [this](std::function<void()> work) {
      asio::post(workers_, [work = std::move(work)]() mutable {
        StepBack();
        work();
        work = nullptr;
      });
    };
  }

  void RunLoop() {
    for (;;) {
      try {
        return static_cast<void>(io_.run());
      } catch (const std::bad_alloc&) {
        // Of one connection, which is lost; the others go on.
      }
    }
  }

  void Tidy() {
    if (service_->gate().is_stopping() || !service_->host().Tidy()) return;
    tidy_timer_.expires_after(kTidyTime);
    tidy_timer_.async_wait([this](SystemError error) {
      if (!error) Tidy();
    });
  }

  void Accept() {
    acceptor_.async_accept([this](SystemError error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!error) {
        Take(std::move(socket));
        return Accept();
      }
      // Of connections that went away, or for want of descriptors: the next may work.
      accept_timer_.expires_after(kAcceptPause);
      accept_timer_.async_wait([this](SystemError) {
        if (acceptor_.is_open()) Accept();
      });
    });
  }

  void Take(tcp::socket socket) {
    std::erase_if(connections_, [](const auto& connection) { return connection.expired(); });
    SystemError error;
    const auto client = socket.remote_endpoint(error);
    if (error) return;  // it has gone
    service_->metrics().AddConnections(1);
    const std::string address = client.address().to_string();
    const auto connection = std::make_shared<Connection>(
        std::move(socket), *service_, limits_, RequestTrace(options_.access_log, address),
        [this] { service_->metrics().AddConnections(-1); });
    connections_.push_back(connection);
    connection->Start(places_.Take(address, [weak = std::weak_ptr<Connection>(connection)] {
      if (const auto given_up = weak.lock()) given_up->Abort();
    }));
  }

  void Stop() {
    service_->gate().Stop();
    service_->host().Stop();
    grace_end_ = std::chrono::steady_clock::now() + options_.grace;
    stop_at_ = grace_end_ - options_.save_time;
    signals_.async_wait([this](SystemError error, int) {
      if (!error) stop_at_ = grace_end_ = std::chrono::steady_clock::now();
    });
    PollStop();
  }

  bool IsAnswering() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const auto& weak) {
      const auto connection = weak.lock();
      return connection && connection->is_answering();
    });
  }

  // Ends when nothing is under way, or the time is over and what was under way has been ended.
  void PollStop() {
    const auto now = std::chrono::steady_clock::now();
    if (now >= stop_at_) EndAll();
    if (service_->is_idle() && (!IsAnswering() || now >= stop_at_ + kLastWords)) {
      AbortAll();
      return End();
    }
    stop_timer_.expires_after(kStopPoll);
    stop_timer_.async_wait([this](SystemError) { PollStop(); });
  }

  // No more work: Run returns.
  void End() {
    SystemError ignored;
    acceptor_.close(ignored);
    signals_.cancel(ignored);
    accept_timer_.cancel();
    tidy_timer_.cancel();
  }

  void EndAll() {
    const RequestError stopping(Status::kUnavailable, "the server is stopping", "", "stopping");
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) connection->End(stopping);
    }
  }

  void AbortAll() {
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) connection->Abort();
    }
  }

  const ServerOptions& options_;
  const ServerLimits limits_;
  Places places_;  // outlives connections
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer stop_timer_;
  asio::steady_timer accept_timer_{io_};
  asio::steady_timer tidy_timer_{io_};
  std::unique_ptr<Service> service_;
  std::vector<std::weak_ptr<Connection>> connections_;
  std::chrono::steady_clock::time_point stop_at_;  // what is still under way then is ended
  std::chrono::steady_clock::time_point grace_end_;
  std::optional<RequestError> failure_;  // why nothing is served
  // For what would keep the others waiting; two, so that what takes seconds keeps not even those of
  // its kind waiting. Last: they use the rest.
  asio::thread_pool workers_{2};
  std::optional<asio::thread_pool> loader_;  // loads and unloads models
};

}  // namespace

std::vector<std::string> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(hearth::ErrorCode::kNotFound, Printable(path), "it cannot be read");
  std::vector<std::string> keys;
  std::string line;
  while (std::getline(file, line)) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const bool is_printable =
        std::all_of(line.begin(), line.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (!is_printable) {
      throw Error(hearth::ErrorCode::kInvalidArgument, Printable(path),
                  "a key is printable ASCII without spaces");
    }
    keys.push_back(line);
  }
  if (keys.empty()) {
    throw Error(hearth::ErrorCode::kInvalidArgument, Printable(path), "it holds no key");
  }
  return keys;
}

bool IsOpenToAll(const ServerOptions& options) {
  return !ParseAddress(options.host).is_loopback() && options.keys.empty() && !options.allow_no_key;
}

void CheckAddress(const ServerOptions& options) {
  asio::io_context io;
  tcp::acceptor acceptor(io);
  Listen(options, acceptor);
}

namespace {

void CheckOpenness(const ServerOptions& options) {
  if (!IsOpenToAll(options)) return;
  throw Error(hearth::ErrorCode::kInvalidArgument, Field{"host"},
              Printable(options.host) + " can be reached by others, and no key is asked for");
}

}  // namespace

std::chrono::steady_clock::time_point Serve(
    api::Model& model, const ServerOptions& options,
    const std::function<void(uint16_t port)>& on_listening) {
  CheckOpenness(options);
  mallopt(M_MMAP_THRESHOLD, kLargeBuffer);
  Server server(options);
  server.Use(model);
  server.Run(on_listening);
  return server.grace_end();
}

void Serve(ModelSource& source, const SharingOptions& sharing, const ServerOptions& options,
           const std::function<void(uint16_t port)>& on_listening,
           const std::function<void(const std::string& sentence)>& tell) {
  CheckOpenness(options);
  mallopt(M_MMAP_THRESHOLD, kLargeBuffer);
  Server server(options);
  server.Use(source, sharing, tell);
  server.Run(on_listening);
}

}  // namespace hearth::serve
