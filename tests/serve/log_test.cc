// The access log of `hearth serve --verbose`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "serve_requests.h"
#include "server_process.h"

namespace hearth {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServeLogTest, NamesEveryAnswerAndNoSecret) {
  const std::string keys = ::testing::TempDir() + "hearth_log_keys";
  std::ofstream(keys) << "the-key\n";
  const std::string key = "Authorization: Bearer the-key\r\n";
  ServerProcess server(Stories(), {"--verbose", "--api-key-file", keys, "--parallel", "1",
                                   "--queue", "0", "--threads", "1", "--isa", "scalar"});
  HttpClient client = server.Connect();
  nlohmann::json request = Completion("Once upon a time", 8);
  EXPECT_EQ(client.Post("/v1/completions?key=the-key", request, key).status, 200);
  EXPECT_EQ(client.Post("/v1/completions", {{"prompt", 1.5}}, key).status, 400);
  EXPECT_EQ(server.Connect().Get("/v1/models", "x-api-key: the-wrong-key\r\n").status, 401);
  request = Chat("Tell me a story about a fox.");
  request["max_tokens"] = 480;
  request["logit_bias"] = EndlessBias();
  request["stream"] = true;
  {
    HttpClient leaves = server.Connect();
    leaves.SendPost("/v1/chat/completions", request, key);
    EXPECT_THAT(leaves.ReadSome(), HasSubstr("200 OK"));
    EXPECT_EQ(client
                  .Post("/v1/messages",
                        {{"model", "m"},
                         {"max_tokens", 4},
                         {"messages", {{{"role", "user"}, {"content", "a"}}}}},
                        key)
                  .status,
              429);
  }
  const std::string log = server.ReadNotices("aborted\n");
  const std::string client_and = "[0-9T:.-]+Z 127.0.0.1 ";
  const std::string sent = " bytes=[1-9][0-9]* ms=[0-9]+[.][0-9]";
  EXPECT_THAT(log, ContainsRegex(client_and + "POST /v1/completions 200" + sent +
                                 " prompt=[1-9] completion=8\n"));
  EXPECT_THAT(log, ContainsRegex(client_and + "POST /v1/completions 400" + sent + "\n"));
  EXPECT_THAT(log, ContainsRegex(client_and + "GET /v1/models 401" + sent + "\n"));
  EXPECT_THAT(log, ContainsRegex(client_and + "POST /v1/messages 429" + sent + "\n"));
  EXPECT_THAT(log, ContainsRegex(client_and + "POST /v1/chat/completions 200" + sent +
                                 " prompt=[1-9][0-9]* completion=[0-9]+ aborted\n"));
  for (const char* secret : {"the-key", "the-wrong-key", "fox", "Once"}) {
    EXPECT_THAT(log, Not(HasSubstr(secret)));
  }
}

TEST(ServeLogTest, NobodyWaitsForAReaderOfTheLog) {
  ServerProcess server(Stories(), {"--verbose", "--threads", "1"});
  HttpClient client = server.Connect();
  // More than a pipe holds, and nobody reads it.
  const std::string path = "/health/" + std::string(400, 'a');
  for (int i = 0; i < 300; ++i) ASSERT_EQ(client.Get(path).status, 404);
  EXPECT_THAT(server.ReadNotices(" 404 "), HasSubstr(path));
  for (int i = 0; i < 100; ++i) server.ReadNotices("/health/");
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_THAT(server.ReadNotices("GET /health 200"), HasSubstr("lines of the log were dropped"));
}

TEST(ServeLogTest, IsSilentUnlessAsked) {
  ServerProcess server(Stories(), {"--threads", "1"});
  EXPECT_EQ(server.Connect().Get("/health").status, 200);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_EQ(server.ReadNotices("GET"), "hearth: stopped\n");
}

}  // namespace
}  // namespace hearth
