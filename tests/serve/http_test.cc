// The HTTP of `hearth serve`: what is odd, hostile or old.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve_requests.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServeHttpTest : public StoriesServerTest {
 protected:
  // All that comes until the connection ends.
  static std::string Exchange(const std::string& bytes, bool closes_writing = false) {
    HttpClient client = Connect();
    client.Send(bytes);
    if (closes_writing) client.CloseWriting();
    std::string all;
    for (std::string some; !(some = client.ReadSome()).empty();) all += some;
    return all;
  }
};

constexpr char kClose[] = "Connection: close\r\n";

// A request without a body that ends its connection.
std::string Ask(const std::string& line, const std::string& headers = "Host: localhost\r\n") {
  return line + "\r\n" + headers + kClose + "\r\n";
}

TEST_F(ServeHttpTest, PagesOfOtherOriginsAndHostsAreRefused) {
  HttpClient client = Connect();
  const json request = Completion("a", 1);
  EXPECT_EQ(client.Post("/v1/completions", request, "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(Connect().Post("/v1/completions", request, "Origin: http://localhost\r\n").status, 200);
  HttpClient rebound = Connect();
  rebound.Send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(rebound.Read().status, 403);
}

TEST_F(ServeHttpTest, WhatIsNoHttpIsRefusedOrDropped) {
  const std::string longest(20'000, 'a');
  const std::pair<std::string, int> cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nbroken header\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nX: " + longest + "\r\n\r\n", 431},
      {"GET /" + longest + " HTTP/1.1\r\n\r\n", 431},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
       413},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
       "zz\r\n",
       400},
      {std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + "\r\n\r\n", 400},
  };
  for (const auto& [bytes, status] : cases) {
    HttpClient client = Connect();
    client.Send(bytes);
    EXPECT_EQ(client.Read().status, status) << bytes.substr(0, 60);
    EXPECT_EQ(client.ReadSome(), "") << "and the connection ends";
  }
  // A body past the limit, without saying so first.
  HttpClient client = Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 80 && client.Send(chunk); ++i) {
  }
  EXPECT_EQ(client.Read().status, 413);
  // Half a request, and the end.
  HttpClient half = Connect();
  half.Send("POST /v1/completions HTTP/1.1\r\nContent-Le");
  half.CloseWriting();
  EXPECT_EQ(half.Read().status, 0);
  EXPECT_EQ(Connect().Get("/health").status, 200);
}

TEST_F(ServeHttpTest, RequestsThatAreSentAheadAreAnsweredInOrder) {
  HttpClient client = Connect();
  client.SendPost("/v1/completions", Completion("Once", 30));
  client.SendPost("/v1/completions", Completion("A fox", 5));
  client.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().Json()["usage"]["completion_tokens"], 30);
  EXPECT_EQ(client.Read().Json()["usage"]["completion_tokens"], 5);
  EXPECT_EQ(client.Read().Json()["status"], "ok");
}

TEST_F(ServeHttpTest, WaitsForAHundredAndUnderstandsOldClients) {
  HttpClient client = Connect();
  EXPECT_EQ(client.Post("/v1/completions", Completion("a", 2), "Expect: 100-continue\r\n").status,
            200);
  HttpClient old = Connect();
  json request = Completion("a", 3);
  request["stream"] = true;
  const std::string body = request.dump();
  old.Send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body);
  const HttpResponse response = old.Read();
  EXPECT_EQ(response.headers.count("transfer-encoding"), 0u);
  EXPECT_GT(response.Events().size(), 1u);
}

TEST_F(ServeHttpTest, AThousandConnectionsAtOnce) {
  // Their memory is what the first thousand took.
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<HttpClient> clients;
    for (int i = 0; i < 1000; ++i) {
      clients.push_back(Connect());
      ASSERT_TRUE(clients.back().is_connected()) << i;
    }
    for (HttpClient& client : clients) {
      client.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (HttpClient& client : clients) EXPECT_EQ(client.Read().status, 200);
    if (round == 0) before = server_->ResidentBytes();
  }
  EXPECT_LT(server_->ResidentBytes(), before + kKeptBytes);
}

TEST_F(ServeHttpTest, OnlyThisMachineIsALocalHost) {
  for (const char* host : {"127.evil.example", "127.0.0.1.evil.example", "127.1",
                           "localhost.evil.example", "localhostx", "[::2]", "10.0.0.1"}) {
    EXPECT_THAT(Exchange(Ask("GET /health HTTP/1.1", std::string("Host: ") + host + "\r\n")),
                StartsWith("HTTP/1.1 403 "))
        << host;
  }
  for (const char* host :
       {"LOCALHOST:80", "localhost.", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080"}) {
    EXPECT_THAT(Exchange(Ask("GET /health HTTP/1.1", std::string("Host: ") + host + "\r\n")),
                StartsWith("HTTP/1.1 200 "))
        << host;
  }
}

TEST_F(ServeHttpTest, HeadsThatSayTwoThingsAreRefused) {
  const std::string post = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n";
  const std::string body = R"({"content": "a"})";
  const std::pair<std::string, int> cases[] = {
      {"GET /health HTTP/1.1\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n" + body, 501},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n10\r\n" + body + "\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: chunked, chunked\r\n\r\n" + body, 501},
      {post + "Content-Encoding: gzip\r\nContent-Length: 16\r\n\r\n" + body, 415},
      {post + "Expect: miracles\r\nContent-Length: 16\r\n\r\n" + body, 417},
  };
  for (const auto& [bytes, status] : cases) {
    // What follows is no request: there is one answer, and the connection ends.
    const std::string all = Exchange(bytes);
    EXPECT_THAT(all, StartsWith("HTTP/1.1 " + std::to_string(status) + " ")) << bytes;
    EXPECT_THAT(all, HasSubstr("Connection: close"));
    EXPECT_EQ(all.find("HTTP/1.1 ", 1), std::string::npos) << all;
  }
}

TEST_F(ServeHttpTest, HeadIsAnsweredWithoutABody) {
  for (const char* path : {"/health", "/v1/models", "/metrics", "/", "/nothing", "/tokenize"}) {
    const std::string all = Exchange(Ask(std::string("HEAD ") + path + " HTTP/1.1"));
    EXPECT_THAT(all, EndsWith("\r\n\r\n")) << path;
    EXPECT_THAT(all, ::testing::Not(HasSubstr("Content-Length: 0")));
  }
  EXPECT_THAT(Exchange(Ask("HEAD /health HTTP/1.1")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Exchange(Ask("DELETE /health HTTP/1.1")), HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST_F(ServeHttpTest, ReadsTargetsAndLinesAsTheStandardSays) {
  const char* good[] = {"GET /%68ealth HTTP/1.1", "GET http://localhost/health HTTP/1.1",
                        "GET HTTP://localhost:99/health?x=1 HTTP/1.1", "\r\nGET /health HTTP/1.1"};
  for (const char* line : good) {
    const std::string all = Exchange(Ask(line));
    EXPECT_THAT(all, StartsWith("HTTP/1.1 200 ")) << line;
    EXPECT_THAT(all, HasSubstr("\r\nDate: "));
    EXPECT_THAT(all, HasSubstr(" GMT\r\n"));
  }
  EXPECT_THAT(Exchange(Ask("GET http://evil.example/health HTTP/1.1")),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Exchange(Ask("GET /%zz%6 HTTP/1.1")), StartsWith("HTTP/1.1 404 "));
  // An empty line between two requests.
  HttpClient client = Connect();
  for (int i = 0; i < 2; ++i) {
    client.Send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n");
    EXPECT_EQ(client.Read().status, 200);
  }
  // And while one is answered.
  client.SendPost("/v1/completions", Completion("a", 30));
  client.Send("\r\n");
  EXPECT_EQ(client.Read().status, 200);
  client.Send("\r\n");
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST_F(ServeHttpTest, WhatWasAskedBeforeTheEndIsAnswered) {
  const std::string ask = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string all = Exchange(ask + ask + ask, true);
  size_t answers = 0;
  for (size_t at = 0; (at = all.find("HTTP/1.1 200 ", at)) != std::string::npos; ++at) ++answers;
  EXPECT_EQ(answers, 3u);
}

TEST_F(ServeHttpTest, OldClientsAreNotToldToContinue) {
  const std::string body = R"({"content": "a"})";
  EXPECT_THAT(
      Exchange("POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 16\r\n\r\n" +
               body),
      StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Exchange("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\n" +
                       std::string(kClose) + "Content-Length: 16\r\n\r\n" + body),
              StartsWith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "));
}

TEST_F(ServeHttpTest, AnswersThatWouldBeTooLongAreRefused) {
  std::string words;
  while (words.size() < (size_t{4} << 20) - 64) words += "a ";
  const HttpResponse tokens =
      Connect().Post("/tokenize", {{"content", words}, {"with_pieces", true}});
  EXPECT_EQ(tokens.status, 413);
  EXPECT_EQ(tokens.Json()["error"]["param"], "content");
  json request = Completion("a", 500);
  request["n"] = 8;
  request["logprobs"] = 20;
  const HttpResponse scores = Connect().Post("/v1/completions", request);
  EXPECT_EQ(scores.status, 200) << "84,000 of them";
  EXPECT_EQ(scores.Json()["choices"][7]["logprobs"]["tokens"].size(), 500u);
  EXPECT_THAT(scores.body.size() / (size_t{8} * 500 * 21), ::testing::Lt(120u));
}

// Bodies of many clients that never end: those that are too many are refused, and small requests go
// on.
TEST_F(ServeHttpTest, AllBodiesTogetherAreBounded) {
  const int64_t before = server_->ResidentBytes();
  std::vector<HttpClient> clients;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    HttpClient client = Connect();
    client.Send(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        "Content-Length: 4000000\r\n\r\n");
    const std::string answer = client.ReadSome();
    if (answer.rfind("HTTP/1.1 503 ", 0) == 0) {
      EXPECT_THAT(answer, HasSubstr("overloaded"));
      ++refused;
    } else {
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 100 "));
      client.Send(std::string(3'999'999, ' '));
      clients.push_back(std::move(client));
    }
  }
  EXPECT_EQ(refused, 16);
  EXPECT_EQ(Connect().Post("/v1/completions", Completion("a", 2)).status, 200);
  EXPECT_LT(server_->ResidentBytes(), before + (int64_t{26} << 20) + kKeptBytes);
  clients.clear();
  const json body = {{"content", std::string(100'000, ' ')}};
  int status = 503;
  for (int i = 0; i < 1000 && status == 503; ++i) status = Connect().Post("/tokenize", body).status;
  EXPECT_EQ(status, 200) << "their share is given back";
}

TEST(ServeHttpLimitTest, AClientThatSendsOnAfterItsRequestIsCut) {
  const ServerProcess server(Stories(), {"--threads", "1", "--isa", "scalar"});
  HttpClient client = server.Connect();
  client.SendPost("/v1/completions", Completion("Once upon a time", 480));
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 1));
  client.Send(std::string(20'000, 'A'));
  EXPECT_EQ(client.Read().status, 0);
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 0));
  EXPECT_LT(server.Metric("hearth_generated_tokens_total"), 480);
}

TEST(ServeHttpLimitTest, NamesMayHaveSlashesAndSpaces) {
  const ServerProcess server(Stories(), {"--name", "org/My Model"});
  for (const char* path : {"/v1/models/org%2FMy%20Model", "/v1/models/org/My%20Model"}) {
    EXPECT_EQ(server.Connect().Get(path).Json()["id"], "org/My Model") << path;
  }
  EXPECT_EQ(server.Connect().Get("/v1/models/my").Json()["error"]["code"], "model_not_found");
}

}  // namespace
}  // namespace hearth
