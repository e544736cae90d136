// `hearth serve` from outside: what clients see, good ones and others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/test_data.h"
#include "json_schema.h"
#include "program.h"
#include "serve_requests.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ServeTest = StoriesServerTest;

TEST_F(ServeTest, TellsItsModelAndHealth) {
  HttpClient client = Connect();
  EXPECT_EQ(client.Get("/health").Json()["status"], "ok");
  const json models = client.Get("/v1/models").Json();
  EXPECT_EQ(models["data"][0]["id"], "hearth-stories-5m");
  EXPECT_EQ(models["data"][0]["context_length"], 512);
  EXPECT_EQ(client.Get("/v1/models/hearth-stories-5m").Json()["object"], "model");
  EXPECT_EQ(client.Get("/v1/models/nope").Json()["error"]["code"], "model_not_found");
  const json stats = client.Get("/v1/hearth/stats").Json();
  EXPECT_THAT(SchemaComplaints(Schema("stats"), stats), ::testing::IsEmpty());
  EXPECT_GT(stats["memory"]["ledger"]["kv cache"], 0);
  EXPECT_EQ(stats["requests"]["parallel"], 4);
  const json neurons = client.Get("/v1/hearth/neurons").Json();
  EXPECT_THAT(SchemaComplaints(Schema("neurons"), neurons), ::testing::IsEmpty());
  EXPECT_TRUE(neurons["shape"].is_null()) << "its FFNs are matrices";
  const HttpResponse metrics = client.Get("/metrics");
  EXPECT_THAT(metrics.headers.at("content-type"), StartsWith("text/plain"));
  EXPECT_THAT(metrics.body, HasSubstr("hearth_time_to_first_token_seconds_bucket{le=\"+Inf\"}"));
}

TEST_F(ServeTest, TokenizesBothWays) {
  HttpClient client = Connect();
  const std::string text = "Once upon a time, caf\xc3\xa9 \xf0\x9f\x98\x80";
  const json tokens = client.Post("/tokenize", {{"content", text}}).Json();
  // SentencePiece begins every text with a space, which is no part of it.
  EXPECT_EQ(client.Post("/detokenize", tokens).Json()["content"], text);
  const json more =
      client.Post("/tokenize", {{"content", text}, {"add_special", true}, {"with_pieces", true}})
          .Json();
  EXPECT_EQ(more["tokens"].size(), tokens["tokens"].size() + 1);
  EXPECT_TRUE(more["tokens"][1].contains("piece"));
  const json more_ids = client.Post("/tokenize", {{"content", text}, {"add_special", true}}).Json();
  EXPECT_EQ(client.Post("/detokenize", more_ids).Json()["content"], text);
  EXPECT_EQ(client.Post("/detokenize", {{"tokens", {1 << 30}}}).status, 400);
  // Long ones are read beside the thread that answers.
  std::string long_text;
  while (long_text.size() < 200'000) long_text += "Once upon a time ";
  const json many = client.Post("/tokenize", {{"content", long_text}}).Json();
  EXPECT_EQ(client.Post("/detokenize", many).Json()["content"], long_text);
  EXPECT_EQ(client.Post("/tokenize", {{"content", long_text}, {"x", 1}}).status, 400);
}

TEST_F(ServeTest, ACompletionIsWhatRunWrites) {
  const std::string prompt = "Once upon a time";
  std::vector<std::string> arguments = {"run", Stories(),   "-p",     prompt, "-n",
                                        "60",  "--json",    "--seed", "7",    "--temp",
                                        "0.8", "--threads", "2",      "--raw"};
  for (const int id : kEndTokens) {
    arguments.insert(arguments.end(), {"--logit-bias", std::to_string(id) + "=-100"});
  }
  const ProgramResult run = RunHearth(arguments);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json expected = json::parse(run.out);
  HttpClient client = Connect();
  const json answer = client.Post("/v1/completions", Completion(prompt, 60)).Json();
  EXPECT_EQ(answer["choices"][0]["text"], expected["text"]);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 60);
  // Again, from the pages that the first one left behind.
  const json again = client.Post("/v1/completions", Completion(prompt, 60)).Json();
  EXPECT_EQ(again["choices"][0]["text"], expected["text"]);
}

TEST_F(ServeTest, AStreamAddsUpToTheWholeAnswer) {
  HttpClient client = Connect();
  json request = Chat("Tell me a story about a fox.");
  const json whole = client.Post("/v1/chat/completions", request).Json();
  EXPECT_EQ(whole["object"], "chat.completion");
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}};
  const HttpResponse stream = client.Post("/v1/chat/completions", request);
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const std::vector<json> events = stream.Events();
  ASSERT_GT(events.size(), 3u);
  EXPECT_EQ(JoinedText(events), whole["choices"][0]["message"]["content"]);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.back()["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"],
            whole["choices"][0]["finish_reason"]);
  EXPECT_EQ(client.Get("/health").status, 200) << "the connection goes on";
}

TEST_F(ServeTest, StopsAtATextAndSaysTheScores) {
  HttpClient client = Connect();
  json request = Completion("Once upon a time", 40);
  const std::string text = client.Post("/v1/completions", request).Json()["choices"][0]["text"];
  request["stop"] = {text.substr(20, 6)};
  request["logprobs"] = 2;
  for (const bool stream : {false, true}) {
    request["stream"] = stream;
    const HttpResponse response = client.Post("/v1/completions", request);
    ASSERT_EQ(response.status, 200) << response.body;
    const std::vector<json> parts = stream ? response.Events() : std::vector<json>{response.Json()};
    EXPECT_EQ(JoinedText(parts), text.substr(0, 20));
    EXPECT_EQ(parts.back()["choices"][0]["finish_reason"], "stop");
    std::string tokens;
    for (const json& part : parts) {
      const json& scores = part["choices"][0]["logprobs"];
      if (scores.is_null()) continue;  // the end alone
      for (size_t i = 0; i < scores["tokens"].size(); ++i) {
        EXPECT_EQ(scores["text_offset"][i], tokens.size());
        tokens += scores["tokens"][i];
        EXPECT_LE(scores["token_logprobs"][i].get<double>(), 0);
        EXPECT_LE(scores["top_logprobs"][i].size(), 2u);
      }
    }
    EXPECT_THAT(tokens, StartsWith(text.substr(0, 20)));
  }
}

TEST_F(ServeTest, SeveralAnswersDifferAndSeedsRepeatThem) {
  HttpClient client = Connect();
  json request = Completion("Once upon a time", 20);
  request["n"] = 3;
  const json first = client.Post("/v1/completions", request).Json();
  ASSERT_EQ(first["choices"].size(), 3u);
  EXPECT_NE(first["choices"][0]["text"], first["choices"][1]["text"]);
  EXPECT_EQ(first["choices"], client.Post("/v1/completions", request).Json()["choices"]);
  request["prompt"] = {"Once", "A fox"};
  request["n"] = 2;
  EXPECT_EQ(client.Post("/v1/completions", request).Json()["choices"].size(), 4u);
}

TEST_F(ServeTest, AConversationThatContinuesReusesItsPast) {
  HttpClient client = Connect();
  json request = Chat("Tell me a story about a red boat.");
  request["max_tokens"] = 60;
  const json first = client.Post("/v1/chat/completions", request).Json();
  request["messages"].push_back(first["choices"][0]["message"]);
  request["messages"].back().erase("refusal");
  request["messages"].push_back({{"role", "user"}, {"content", "Go on."}});
  const json second = client.Post("/v1/chat/completions", request).Json();
  ASSERT_TRUE(second.contains("usage")) << second;
  EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"],
            first["usage"]["prompt_tokens"]);
}

TEST_F(ServeTest, AnswersKeepToASchema) {
  const json schema = json::parse(R"({"type": "object", "properties": {
      "mood": {"enum": ["glad", "sad"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
      "required": ["mood", "age"]})");
  json request = Chat("How are you?");
  request["max_tokens"] = 120;
  request["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"name", "answer"}, {"schema", schema}}}};
  HttpClient client = Connect();
  const json answer = client.Post("/v1/chat/completions", request).Json();
  ASSERT_TRUE(answer.contains("choices")) << answer;
  const json choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  const json document =
      json::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
  ASSERT_TRUE(document.is_object()) << document;
  EXPECT_TRUE(document["mood"] == "glad" || document["mood"] == "sad") << document;
  EXPECT_GE(document["age"].get<int>(), 1);
  EXPECT_LE(document["age"].get<int>(), 9);

  request["response_format"]["json_schema"]["schema"] = {{"type", "string"}, {"pattern", "(?=a)b"}};
  const auto refused = client.Post("/v1/chat/completions", request);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, ::testing::HasSubstr("pattern"));
}

TEST_F(ServeTest, EmbeddingsHaveLengthOneInBothFormats) {
  HttpClient client = Connect();
  const json request = {{"input", {"A fox ran.", "The boat is red."}}};
  // More than run and wait at once come in turn.
  const json many = {{"input", std::vector<std::string>(30, "A fox ran.")}};
  const HttpResponse answer = client.Post("/v1/embeddings", many);
  EXPECT_EQ(answer.Json()["data"].size(), 30u);
  // A float takes nine digits: as many as may be asked for at once fit into what answers may take.
  EXPECT_LT(answer.body.size() / (size_t{30} * 256), 14u);
  const json floats = client.Post("/v1/embeddings", request).Json();
  ASSERT_EQ(floats["data"].size(), 2u);
  const auto vector = floats["data"][0]["embedding"].get<std::vector<double>>();
  EXPECT_EQ(vector.size(), 256u);
  double sum = 0;
  for (const double x : vector) sum += x * x;
  EXPECT_NEAR(sum, 1, 1e-4);
  EXPECT_NE(floats["data"][0]["embedding"], floats["data"][1]["embedding"]);
  json encoded = request;
  encoded["encoding_format"] = "base64";
  const std::string text = client.Post("/v1/embeddings", encoded).Json()["data"][0]["embedding"];
  EXPECT_EQ(text.size(), (256 * 4 + 2) / 3 * 4);
}

TEST_F(ServeTest, RefusesWithTheErrorsOfTheApi) {
  struct Case {
    const char* method;
    const char* path;
    std::string body;
    int status;
    const char* words;
  };
  const std::string long_text(100'000, 'a');
  const Case cases[] = {
      {"POST", "/v1/chat/completions", "{", 400, "expected JSON"},
      {"POST", "/v1/chat/completions", "\"\xff\"", 400, "expected JSON"},
      {"POST", "/v1/chat/completions", "{}", 400, "messages"},
      {"POST", "/v1/completions", R"({"prompt": "a", "temperature": 99})", 400, "temperature"},
      {"POST", "/v1/completions", R"({"prompt": "a", "tools": []})", 400, "tools"},
      {"POST", "/v1/completions", R"({"prompt": [99999]})", 400, "token id"},
      {"POST", "/v1/completions", R"({"prompt": "a", "n": 100})", 400, "at most 8"},
      {"POST", "/v1/completions", R"({"prompt": ")" + long_text + "\"}", 400,
       "This model's maximum context length is 512 tokens, but the prompt has at least"},
      {"POST", "/v1/embeddings", R"({"input": ")" + long_text + "\"}", 400,
       "This model's maximum context length is 512 tokens"},
      {"GET", "/v1/chat/completions", "", 405, "POST"},
      {"DELETE", "/v1/models", "", 405, "GET"},
      {"GET", "/nothing", "", 404, "/nothing"},
      {"GET", "/../../etc/passwd", "", 404, "etc"},
      {"GET", "/v1/models/../../health", "", 404, "no model"},
      {"GET", "/%2e%2e/health", "", 404, "nothing"},
      {"GET", "//health", "", 404, "nothing"},
      {"GET", "/v1/models/other", "", 404, "no model"},
  };
  for (const Case& c : cases) {
    HttpClient client = Connect();
    client.Send(std::string(c.method) + " " + c.path + " HTTP/1.1\r\nHost: localhost\r\n" +
                "Content-Length: " + std::to_string(c.body.size()) + "\r\n\r\n" + c.body);
    const HttpResponse response = client.Read();
    EXPECT_EQ(response.status, c.status) << c.path << c.body.substr(0, 80);
    ASSERT_TRUE(json::accept(response.body)) << c.path;
    const json error = response.Json()["error"];
    for (const char* field : {"message", "type", "param", "code"}) {
      EXPECT_TRUE(error.contains(field)) << field;
    }
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(c.words));
    EXPECT_EQ(response.headers.count("access-control-allow-origin"), 0u);
    EXPECT_EQ(response.headers.count("allow"), c.status == 405 ? 1u : 0u);
  }
  EXPECT_EQ(Connect().Get("/health").status, 200);
}

TEST(ServeLoadTest, AFullQueueRefusesAndDroppedClientsMakeRoom) {
  const ServerProcess server(
      Stories(), {"--parallel", "1", "--queue", "2", "--threads", "1", "--isa", "scalar"});
  std::vector<HttpClient> clients;
  json request = Completion("Once upon a time", 480);
  request["stream"] = true;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(server.Connect());
    clients.back().SendPost("/v1/completions", request);
  }
  EXPECT_TRUE(server.WaitFor("hearth_requests_waiting", 2));
  const HttpResponse refused = server.Connect().Post("/v1/completions", request);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_EQ(refused.Json()["error"]["type"], "rate_limit_error");
  // The one that runs has begun its stream; all go away, one of them by closing its half.
  EXPECT_THAT(clients.front().ReadSome(), StartsWith("HTTP/1.1 200"));
  clients.back().CloseWriting();
  clients.clear();
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 0));
  EXPECT_TRUE(server.WaitFor("hearth_requests_waiting", 0));
  EXPECT_LT(server.Metric("hearth_generated_tokens_total"), 480)
      << "it was not finished for nobody";
  EXPECT_EQ(server.Connect().Post("/v1/completions", Completion("a", 2)).status, 200);
}

TEST(ServeLoadTest, ADroppedClientEndsItsPromptToo) {
  const ServerProcess server(Stories(), {"--threads", "1", "--isa", "scalar"});
  std::string story;
  while (story.size() < 1200) story += "The little fox ran to the river. ";
  {
    HttpClient client = server.Connect();
    client.SendPost("/v1/completions", Completion(story, 16));
    EXPECT_TRUE(server.WaitFor("hearth_requests_running", 1));
  }
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 0));
  EXPECT_EQ(server.Metric("hearth_generated_tokens_total"), 0);
  EXPECT_EQ(server.Connect().Post("/v1/completions", Completion("a", 2)).status, 200);
}

TEST(ServeLoadTest, ManyClientsAllGetTheirAnswers) {
  ServerProcess server(Stories(), {"--parallel", "8", "--threads", "2"});
  std::vector<std::string> alone;
  for (int i = 0; i < 16; ++i) {
    json request = Completion("Once upon a time", 30);
    request["seed"] = i;
    alone.push_back(server.Connect().Post("/v1/completions", request).Json()["choices"][0]["text"]);
  }
  std::vector<std::thread> threads;
  std::vector<std::string> together(alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    threads.emplace_back([&, i] {
      json request = Completion("Once upon a time", 30);
      request["seed"] = i;
      together[i] = server.Connect().Post("/v1/completions", request).Json()["choices"][0]["text"];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone) << "a model of matrices: company changes no bit";
  EXPECT_LT(server.Metric("hearth_decode_passes_total"),
            server.Metric("hearth_generated_tokens_total"));
}

TEST(ServeKeyTest, OnlyThoseWithAKeyGetIn) {
  const std::string file = ::testing::TempDir() + "hearth_keys";
  std::ofstream(file) << "# keys\nsecret-one\n\nsecret-two\r\n";
  const ServerProcess server(Stories(), {"--api-key-file", file});
  EXPECT_EQ(server.Connect().Get("/health").status, 200);
  for (const char* path : {"/v1/models", "/metrics", "/v1/hearth/stats", "/nothing"}) {
    const HttpResponse refused = server.Connect().Get(path);
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(refused.Json()["error"]["code"], "invalid_api_key");
  }
  for (const char* wrong : {"secret", "secret-one ", "secret-onee", "", "SECRET-ONE", "# keys"}) {
    const std::string header = std::string("Authorization: Bearer ") + wrong + "x\r\n";
    EXPECT_EQ(server.Connect().Get("/v1/models", header).status, 401) << wrong;
  }
  EXPECT_EQ(server.Connect().Get("/v1/models", "Authorization: Basic secret-one\r\n").status, 401);
  EXPECT_EQ(server.Connect().Get("/v1/models", "Authorization: bearer  secret-one\r\n").status,
            200);
  for (const char* key : {"secret-one", "secret-two"}) {
    const std::string header = std::string("Authorization: Bearer ") + key + "\r\n";
    EXPECT_EQ(server.Connect().Get("/v1/models", header).status, 200);
    EXPECT_EQ(server.Connect().Post("/v1/completions", Completion("a", 1), header).status, 200);
  }
  EXPECT_EQ(server.Connect().Post("/v1/completions", Completion("a", 1)).status, 401);
}

TEST(ServeStartTest, RefusesWhatWouldLetEverybodyIn) {
  for (const char* host : {"0.0.0.0", "::", "192.0.2.1"}) {
    const ProgramResult result = RunHearth({"serve", Stories(), "--host", host, "--port", "0"});
    EXPECT_EQ(result.exit_code, 2) << host;
    EXPECT_THAT(result.err, HasSubstr("--allow-no-key"));
  }
  EXPECT_EQ(RunHearth({"serve", Stories(), "--host", "example.com"}).exit_code, 2);
  EXPECT_EQ(RunHearth({"serve", Stories(), "--port", "70000"}).exit_code, 2);
  EXPECT_EQ(RunHearth({"serve", Stories(), "--parallel", "0"}).exit_code, 2);
  EXPECT_EQ(RunHearth({"serve", Stories(), "--api-key-file", "/nowhere"}).exit_code, 1);
}

TEST(ServeStartTest, KeysThatOthersCanReadAreWarnedOf) {
  const std::string keys = ::testing::TempDir() + "hearth_keys." + std::to_string(getpid());
  std::ofstream(keys) << "secret\n";
  for (const unsigned mode : {0644u, 0600u}) {
    std::filesystem::permissions(keys, static_cast<std::filesystem::perms>(mode));
    const ProgramResult result =
        RunHearth({"serve", "/nowhere.gguf", "--port", "0", "--api-key-file", keys});
    EXPECT_EQ(result.err.find("other users can read the keys") != std::string::npos, mode == 0644u);
  }
  std::filesystem::remove(keys);
}

TEST(ServeStartTest, LooksAtTheAddressBeforeTheModel) {
  ServerProcess server(Stories(), {"--threads", "1"});
  const ProgramResult result =
      RunHearth({"serve", "/nowhere.gguf", "--port", std::to_string(server.port())});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot listen"));
}

TEST(ServeStartTest, AModelWithoutATemplateChatsInAChosenFormat) {
  const std::string model = SourcePath("tests/goldens/llama.gguf");
  const json chat = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}};
  ServerProcess without(model, {"--threads", "1"});
  const HttpResponse refused = without.Connect().Post("/v1/chat/completions", chat);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("chat_format"));
  ServerProcess with(model, {"--threads", "1", "--chat-format", "llama-2"});
  EXPECT_EQ(with.Connect().Post("/v1/chat/completions", chat).status, 200);
  EXPECT_EQ(RunHearth({"serve", model, "--chat-format", "klingon"}).exit_code, 2);
}

TEST(ServeStopTest, FinishesWhatRunsAndRefusesWhatIsNew) {
  ServerProcess server(Stories(), {"--threads", "1", "--isa", "scalar", "--grace", "60"});
  HttpClient running = server.Connect(), other = server.Connect();
  // Long enough to be under way while others ask.
  json request = Completion("Once upon a time", 120);
  request["stream"] = true;
  running.SendPost("/v1/completions", request);
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 1));
  server.Signal(SIGTERM);
  HttpResponse refused = other.Post("/v1/completions", Completion("a", 1));
  for (int i = 0; i < 100 && refused.status == 200; ++i) {  // until the signal has arrived
    refused = server.Connect().Post("/v1/completions", Completion("a", 1));
  }
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(server.Connect().Get("/health").Json()["status"], "stopping");
  const std::vector<json> events = running.Read().Events();
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(server.Wait(), 0);
}

TEST(ServeStopTest, AStreamThatIsCutSaysWhy) {
  ServerProcess server(Stories(), {"--threads", "1", "--isa", "scalar", "--grace", "0"});
  HttpClient running = server.Connect();
  json request = Completion("Once upon a time", 500);
  request["stream"] = true;
  running.SendPost("/v1/completions", request);
  std::string stream = running.ReadSome();
  server.Signal(SIGTERM);
  for (std::string some; !(some = running.ReadSome()).empty();) stream += some;
  EXPECT_THAT(stream, HasSubstr("the server is stopping"));
  EXPECT_THAT(stream, ::testing::EndsWith("\r\n0\r\n\r\n"));
  EXPECT_EQ(server.Wait(), 0);
}

TEST(ServeStopTest, TheGraceIsBounded) {
  ServerProcess server(Stories(), {"--threads", "1", "--isa", "scalar", "--grace", "0"});
  HttpClient running = server.Connect();
  running.SendPost("/v1/completions", Completion("Once upon a time", 500));
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 1));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  const HttpResponse ended = running.Read();
  EXPECT_EQ(ended.status, 503) << "its time was over";
  EXPECT_EQ(ended.Json()["error"]["code"], "stopping");
}

}  // namespace
}  // namespace hearth
