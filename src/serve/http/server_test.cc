// The server in this process, with limits short enough to be reached.
#include "serve/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <future>
#include <memory>
#include <regex>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/test_data.h"
#include "serve/http/access_log.h"
#include "serve/service.h"

namespace hearth::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection that is read to its end.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(const std::string& bytes) const { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // What has arrived, once something has; empty at the end.
  std::string ReadOnce() const {
    std::array<char, 4096> buffer;
    ssize_t got = 0;
    // The system winds up the reads of this thread's model late, and interrupts it for that.
    do got = recv(fd_, buffer.data(), buffer.size(), 0);
    while (got < 0 && errno == EINTR);
    return {buffer.data(), got > 0 ? static_cast<size_t>(got) : 0};
  }
  std::string ReadToEnd() const {
    std::string all, some;
    while (!(some = ReadOnce()).empty()) all += some;
    return all;
  }

 private:
  int fd_;
};

class ServerTest : public ::testing::Test {
 protected:
  void Start(const ServerLimits& limits) {
    options_.port = 0;
    options_.limits = limits;
    options_.grace = std::chrono::seconds(5);
    std::promise<uint16_t> port;
    thread_ = std::thread([this, &port] {
      Serve(model_, options_, [&port](uint16_t chosen) { port.set_value(chosen); });
    });
    port_ = port.get_future().get();
  }
  // Of the key "right", on a connection of its own.
  std::string Ask(const std::string& method_and_path, const std::string& body) const {
    const RawClient client(port_);
    client.Send(method_and_path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\nx-api-key: right\r\n\r\n" + body);
    return client.ReadToEnd();
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    kill(getpid(), SIGTERM);
    thread_.join();
  }

  api::Model model_ = api::Model::Load(SourcePath("tests/goldens/llama.gguf"), {.threads = 1});
  ServerOptions options_;
  std::thread thread_;
  uint16_t port_ = 0;
};

TEST_F(ServerTest, SlowClientsAreAnswered408) {
  ServerLimits limits;
  limits.request = std::chrono::milliseconds(150);
  Start(limits);
  const RawClient head(port_), body(port_);
  head.Send("GET /health HTTP/1.1\r\nHost: lo");
  body.Send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{\"cont");
  EXPECT_THAT(head.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(body.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(ServerTest, IdleConnectionsEnd) {
  ServerLimits limits;
  limits.idle = std::chrono::milliseconds(150);
  Start(limits);
  const RawClient silent(port_), used(port_);
  used.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_THAT(used.ReadToEnd(), HasSubstr("\"ok\""));
}

TEST_F(ServerTest, SilentConnectionsGiveWay) {
  ServerLimits limits;
  limits.connections = 4;
  Start(limits);
  const RawClient first(port_), second(port_), third(port_);
  EXPECT_EQ(first.ReadToEnd(), "") << "an address may have half of them";
  const RawClient asks(port_);
  asks.Send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(asks.ReadToEnd(), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(second.ReadToEnd(), "");
}

TEST_F(ServerTest, WrongKeysAreRefusedAfterAWhile) {
  options_.keys = {"right"};
  ServerLimits limits;
  limits.wrong_key = std::chrono::milliseconds(20);
  Start(limits);
  const RawClient wrong(port_), right(port_);
  wrong.Send("GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\n\r\n");
  right.Send(
      "GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer right\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_THAT(right.ReadToEnd(), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(wrong.ReadToEnd(), StartsWith("HTTP/1.1 401 "));
}

TEST_F(ServerTest, AClosedTerminalStopsItInGoodOrder) {
  Start({});
  kill(getpid(), SIGHUP);
  thread_.join();
}

// A stream that nobody reads ends when the system's buffers and the server's are full.
TEST_F(ServerTest, AClientThatDoesNotReadLosesItsStream) {
  ServerLimits limits;
  limits.unsent_bytes = 1000;
  Start(limits);
  const RawClient client(port_);
  const std::string body =
      R"({"prompt": [1, 5, 6], "max_tokens": 120, "stream": true, "logprobs": 20, "n": 5,
          "logit_bias": {"1": -100, "2": -100}})";
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  // Nothing is claimed about where it ends, but that it does and that the server goes on.
  client.ReadToEnd();
  const RawClient other(port_);
  other.Send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(other.ReadToEnd(), HasSubstr("\"ok\""));
}

// An answer that waits for another one, which takes every place there is and has begun. On a busy
// machine that one may have ended before the second is asked for: then both are asked for again.
TEST_F(ServerTest, AStreamThatSaysNothingSendsComments) {
  ServerLimits limits;
  limits.silence = std::chrono::milliseconds(0);
  Start(limits);
  const auto Complete = [this](const std::string& fields) {
    const std::string body = R"({"prompt": [1, 5, 6], "stream": true, )" + fields + "}";
    auto client = std::make_unique<RawClient>(port_);
    client->Send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
    return client;
  };
  bool comment_first = false;
  std::string stream;
  for (int attempt = 0; attempt < 50 && !comment_first; ++attempt) {
    const auto before =
        Complete(R"("n": 4, "max_tokens": 120, "logit_bias": {"1": -100, "2": -100})");
    before->ReadOnce();
    stream = Complete(R"("max_tokens": 1)")->ReadToEnd();
    ASSERT_THAT(stream, StartsWith("HTTP/1.1 200 "));
    ASSERT_THAT(stream, HasSubstr("data: [DONE]"));
    comment_first = stream.find("\n:") < stream.find("data: ");
  }
  EXPECT_TRUE(comment_first) << "no comment before the first token: " << stream;
}

// What went to a log, and what was never to: bodies, keys, queries.
TEST_F(ServerTest, TheLogHasALineForEveryAnswer) {
  const std::string path = ::testing::TempDir() + "hearth_access_log";
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  AccessLog log(file);
  options_.access_log = &log;
  options_.keys = {"right"};
  ServerLimits limits;
  limits.wrong_key = std::chrono::milliseconds(1);
  limits.request = std::chrono::milliseconds(150);
  limits.unsent_bytes = 0;  // of a stream: it ends with its first event
  Start(limits);
  const std::string answer =
      Ask("POST /v1/completions?key=secret", R"({"prompt": [1, 5, 6, 9], "max_tokens": 3,
          "logit_bias": {"1": -100, "2": -100}})");
  Ask("POST /v1/completions", "secret");
  Ask("GET /%0a\\path", "");
  const RawClient wrong(port_), slow(port_), large(port_);  // each is answered in its turn
  wrong.Send("GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: secret\r\n\r\n");
  wrong.ReadToEnd();
  slow.Send("GET /secret HT");
  slow.ReadToEnd();
  large.Send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nx-api-key: right\r\n"
      "Content-Length: 99999999\r\n\r\n");
  large.ReadToEnd();
  Ask("POST /v1/completions", R"({"prompt": [1, 5, 6], "max_tokens": 9, "stream": true})");
  kill(getpid(), SIGTERM);
  thread_.join();
  close(file);
  const std::string text = ReadWholeFile(path);
  const std::string time = R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z 127\.0\.0\.1 )";
  const std::string bytes = R"( bytes=\d+ ms=\d+\.\d)";
  const std::string lines[] = {
      "POST /v1/completions 200 bytes=" + std::to_string(answer.size()) +
          R"( ms=\d+\.\d prompt=4 completion=3)",
      "POST /v1/completions 400" + bytes,
      R"(GET /%0a\\x5cpath 404)" + bytes,
      "GET /v1/models 401" + bytes,
      "- - 408" + bytes,
      "POST /tokenize 413" + bytes,
      "POST /v1/completions 200" + bytes + R"( prompt=3 completion=\d+ aborted)",
  };
  std::string all;
  for (const std::string& line : lines) all += time + line + "\n";
  EXPECT_TRUE(std::regex_match(text, std::regex(all))) << text;
}

TEST_F(ServerTest, ATakenPortIsSaidSo) {
  Start({});
  ServerOptions same;
  same.port = port_;
  try {
    Serve(model_, same, [](uint16_t) {});
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot listen"));
  }
}

TEST(ServeOptionsTest, OthersNeedAKey) {
  ServerOptions options;
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    options.host = host;
    EXPECT_FALSE(IsOpenToAll(options)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1"}) {
    options.host = host;
    EXPECT_TRUE(IsOpenToAll(options)) << host;
  }
  for (const char* host : {"example.com", ""}) {
    options.host = host;
    EXPECT_THROW(IsOpenToAll(options), Error) << host;
  }
  options.host = "0.0.0.0";
  options.keys = {"k"};
  EXPECT_FALSE(IsOpenToAll(options));
  options.keys.clear();
  options.allow_no_key = true;
  EXPECT_FALSE(IsOpenToAll(options));
}

TEST(ServeOptionsTest, KeysAreLinesOfAFile) {
  const std::string path = ::testing::TempDir() + "hearth_read_keys";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ReadKeys(path);
  };
  EXPECT_THAT(read("one\n# no key\n\ntwo \r\nthree"), ElementsAre("one", "two", "three"));
  EXPECT_THROW(read(""), Error);
  EXPECT_THROW(read("# nothing\n"), Error);
  EXPECT_THROW(read("two words\n"), Error);
  EXPECT_THROW(read("caf\xc3\xa9\n"), Error);
  EXPECT_THROW(ReadKeys(path + ".none"), Error);
}

}  // namespace
}  // namespace hearth::serve
