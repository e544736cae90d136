// What clients of the OpenAI API, browsers among them, take for granted of `hearth serve`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.h"
#include "serve_requests.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ServeClientsTest = StoriesServerTest;

// Of a raw prompt, where it asks for that; never of what a user says in a chat.
TEST_F(ServeClientsTest, SpecialTokensOfARawPromptAreRead) {
  const std::string text = "<|im_start|>user\nHi<|im_end|>";
  json request = {{"content", text}};
  const json plain = Connect().Post("/tokenize", request).Json()["tokens"];
  request["parse_special"] = true;
  const json parsed = Connect().Post("/tokenize", request).Json()["tokens"];
  EXPECT_LT(parsed.size() + 8, plain.size());
  json completion = {{"prompt", text}, {"max_tokens", 1}, {"parse_special", true}};
  const auto prompt_tokens = [&] {
    return Connect().Post("/v1/completions", completion).Json()["usage"]["prompt_tokens"];
  };
  EXPECT_EQ(prompt_tokens(), parsed.size() + 1) << "after the token that texts begin with";
  completion["prompt"] = "<s>" + text;
  EXPECT_EQ(prompt_tokens(), parsed.size() + 1) << "which the text may write itself";
  const ProgramResult run =
      RunHearth({"run", Stories(), "-p", text, "--special", "-n", "1", "--json", "--threads", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["prefill"]["tokens"], parsed.size() + 1);
  json chat = Chat(text);
  chat["parse_special"] = true;
  EXPECT_EQ(Connect().Post("/v1/chat/completions", chat).status, 400);
}

TEST_F(ServeClientsTest, EchoesThePromptWithItsScores) {
  HttpClient client = Connect();
  json request = Completion("Once upon a time", 6);
  const std::string answer = client.Post("/v1/completions", request).Json()["choices"][0]["text"];
  request["echo"] = true;
  EXPECT_EQ(client.Post("/v1/completions", request).Json()["choices"][0]["text"],
            "Once upon a time" + answer);
  request["logprobs"] = 1;
  const json whole = client.Post("/v1/completions", request).Json();
  const json& choice = whole["choices"][0];
  EXPECT_EQ(choice["text"], "Once upon a time" + answer);
  const json& scores = choice["logprobs"];
  const size_t prompt = whole["usage"]["prompt_tokens"];
  ASSERT_EQ(scores["tokens"].size(), prompt + 6);
  std::string joined;
  for (size_t i = 0; i < scores["tokens"].size(); ++i) {
    EXPECT_EQ(scores["text_offset"][i], joined.size());
    joined += scores["tokens"][i];
    EXPECT_EQ(scores["token_logprobs"][i].is_null(), i == 0) << "nothing is before the first";
  }
  EXPECT_EQ(joined, choice["text"]);
  // The same of tokens, with nothing to generate: a score is what a token's predecessors make it.
  json tokens = {{"content", "Once upon a time"}, {"add_special", true}};
  const json generated =
      client
          .Post("/v1/completions", {{"prompt", client.Post("/tokenize", tokens).Json()["tokens"]},
                                    {"max_tokens", 0},
                                    {"echo", true},
                                    {"logprobs", 1}})
          .Json();
  EXPECT_EQ(generated["choices"][0]["text"], "Once upon a time");
  EXPECT_EQ(generated["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(generated["usage"]["completion_tokens"], 0);
  const json& alone = generated["choices"][0]["logprobs"]["token_logprobs"];
  ASSERT_EQ(alone.size(), prompt);
  for (size_t i = 1; i < prompt; ++i) {
    EXPECT_EQ(alone[i], scores["token_logprobs"][i]);
    EXPECT_LT(alone[i].get<double>(), 0);
  }
  // And in a stream, whose first part is the prompt.
  request["stream"] = true;
  const std::vector<json> events = client.Post("/v1/completions", request).Events();
  EXPECT_EQ(events.front()["choices"][0]["text"], "Once upon a time");
  EXPECT_EQ(JoinedText(events), choice["text"]);
  EXPECT_EQ(events.front()["choices"][0]["logprobs"]["tokens"].size(), prompt);
}

TEST_F(ServeClientsTest, MaxTokensIsAnUpperBound) {
  json request = Completion("Once upon a time", 100'000);
  for (const bool stream : {false, true}) {
    request["stream"] = stream;
    const HttpResponse response = Connect().Post("/v1/completions", request);
    ASSERT_EQ(response.status, 200) << response.body;
    const json last = stream ? response.Events().back() : response.Json();
    EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
    if (!stream) {
      EXPECT_EQ(last["usage"]["total_tokens"], 512) << "the context, and no more";
    }
  }
  // A prompt that leaves no room for a token of an answer is too long.
  request["prompt"] = std::vector<int>(512, 300);
  request["max_tokens"] = 7;
  const json error = Connect().Post("/v1/completions", request).Json()["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["message"],
            "This model's maximum context length is 512 tokens, but 519 were asked for: 512 of the "
            "prompt and 7 to generate");
}

// Each API has other names for the same; an error says the one that the client wrote.
TEST_F(ServeClientsTest, ErrorsNameTheFieldsOfTheirOwnApi) {
  struct Case {
    const char* path;
    const char* more;   // beside a question
    const char* field;  // with which the message begins
  };
  const std::string schema = R"({"type": "json_schema", "name": "x", "schema": {"contains": {}}})";
  const std::string tool = R"({"type": "object", "properties": {"a": {"contains": {}}}})";
  const std::string response_format =
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "x",
          "schema": {"contains": {}}}})";
  const std::string text_format = R"("text": {"format": )" + schema + "}";
  const std::string stream = text_format + R"(, "stream": true)";
  const std::string responses_tool =
      R"("tools": [{"type": "function", "name": "f", "strict": true, "parameters": )" + tool + "}]";
  const std::string output_format = R"("output_format": )" + schema;
  const std::string output_config = R"("output_config": {"format": )" + schema + "}";
  const std::string messages_tool =
      R"("tools": [{"name": "f", "strict": true, "input_schema": )" + tool + "}]";
  constexpr char kChat[] = "/v1/chat/completions", kResponses[] = "/v1/responses",
                 kMessages[] = "/v1/messages";
  const Case cases[] = {
      {kChat, response_format.c_str(), "response_format: 'contains'"},
      {kResponses, text_format.c_str(), "text.format: 'contains'"},
      {kResponses, stream.c_str(), "text.format: 'contains'"},
      {kResponses, R"("text": {"format": {"type": "json_schema"}})", "text.format.schema: "},
      {kResponses, R"("max_output_tokens": 0)", "max_output_tokens: "},
      {kResponses, R"("reasoning": {"effort": 5})", "reasoning.effort: "},
      {kResponses, responses_tool.c_str(), "tools: function 'f'"},
      {kResponses, R"("response_format": {"type": "text"})", "response_format: there is no"},
      {kMessages, output_format.c_str(), "output_format: 'contains'"},
      {kMessages, output_config.c_str(), "output_config.format: 'contains'"},
      {kMessages, R"("output_format": {"type": "json_schema"})", "output_format.schema: "},
      {kMessages, R"("stop_sequences": [""])", "stop_sequences: "},
      {kMessages, R"("thinking": {"type": "deep"})", "thinking.type: "},
      {kMessages, R"("tool_choice": {"type": "any"})", "tool_choice: "},
      {kMessages, messages_tool.c_str(), "tools: function 'f'"},
      {kMessages, R"("tools": [{"name": "f", "input_schema": 1}])", "tools[0].input_schema: "},
      {kMessages, R"("max_completion_tokens": 4)", "max_completion_tokens: "}};
  for (const Case& each : cases) {
    json request = json::parse(std::string("{") + each.more + "}");
    if (each.path == kResponses) {
      request["input"] = "Hi";
    } else {
      request["messages"] = json::array({{{"role", "user"}, {"content", "Hi"}}});
      request["max_tokens"] = 4;
    }
    const HttpResponse response = Connect().Post(each.path, request);
    EXPECT_EQ(response.status, 400) << each.more;
    EXPECT_THAT(response.Json()["error"]["message"].get<std::string>(), StartsWith(each.field))
        << each.more;
  }
  const std::string long_text(4000, 'x');
  const json messages = {{"max_tokens", 4},
                         {"messages", {{{"role", "user"}, {"content", long_text}}}}};
  EXPECT_THAT(Connect().Post(kMessages, messages).body, HasSubstr("but the messages have"));
  EXPECT_THAT(Connect().Post(kResponses, {{"input", long_text}}).body,
              HasSubstr("but the input has"));
}

TEST_F(ServeClientsTest, WhateverTheModelIsCalledItAnswersAndSaysItsName) {
  json request = Completion("a", 1);
  request["model"] = "gpt-5";
  EXPECT_EQ(Connect().Post("/v1/completions", request).Json()["model"], "hearth-stories-5m");
  const json embeddings = {{"input", "a"}, {"model", "other"}, {"dimensions", 256}, {"user", "u"}};
  EXPECT_EQ(Connect().Post("/v1/embeddings", embeddings).Json()["model"], "hearth-stories-5m");
}

TEST_F(ServeClientsTest, WhatIsKnownToHaveNoEffectChangesNothing) {
  json request = Chat("Tell me a story about a fox.");
  request["max_tokens"] = 12;
  const json plain = Connect().Post("/v1/chat/completions", request).Json();
  request.update(json::parse(R"({"user": "u", "metadata": {"a": "b"}, "store": true,
      "reasoning_effort": "high", "max_completion_tokens": 99.0, "tool_choice": "none"})"));
  request["messages"][0]["name"] = "writer";
  request["messages"][0]["cache_control"] = {{"type", "ephemeral"}};
  const json more = Connect().Post("/v1/chat/completions", request).Json();
  EXPECT_EQ(more["choices"], plain["choices"]);
  EXPECT_EQ(more["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);
}

TEST(ServeClientOptionsTest, SaysWhichNamesAndFieldsAreTaken) {
  const ServerProcess server(Stories(), {"--strict-model", "--lenient"});
  json request = Completion("a", 1);
  request["model"] = "gpt-5";
  const HttpResponse refused = server.Connect().Post("/v1/completions", request);
  EXPECT_EQ(refused.status, 404);
  EXPECT_THAT(refused.body, HasSubstr("gpt-5"));
  request["model"] = "hearth-stories-5m";
  request["best_guess"] = true;
  EXPECT_EQ(server.Connect().Post("/v1/completions", request).status, 200);
}

TEST(ServeClientOptionsTest, AStreamThatWaitsHasItsHead) {
  const ServerProcess server(Stories(), {"--parallel", "1", "--threads", "1", "--isa", "scalar"});
  json request = Completion("Once upon a time", 480);
  HttpClient running = server.Connect(), waiting = server.Connect();
  running.SendPost("/v1/completions", request);
  EXPECT_TRUE(server.WaitFor("hearth_requests_running", 1));
  request["stream"] = true;
  waiting.SendPost("/v1/completions", request);
  EXPECT_THAT(waiting.ReadSome(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(server.Metric("hearth_requests_waiting"), 1) << "its turn has not come";
}

TEST_F(ServeClientsTest, PathsHaveAVersionOrNone) {
  for (const char* path : {"/models", "/v1/models/hearth-stories-5m", "/models/hearth-stories-5m",
                           "/v1/health", "/v1/metrics", "/hearth/stats"}) {
    EXPECT_EQ(Connect().Get(path).status, 200) << path;
  }
  EXPECT_EQ(Connect().Post("/completions", Completion("a", 1)).status, 200);
  EXPECT_EQ(Connect().Post("/v1/tokenize", {{"content", "a"}}).status, 200);
  for (const char* path : {"/v1", "/v1/", "/v1/v1/models", "/v2/models", "/models/nope"}) {
    EXPECT_EQ(Connect().Get(path).status, 404) << path;
  }
}

// Browsers ask first, without a key, whether a page of another origin may send its request.
TEST(ServeClientOptionsTest, PagesOfTheOriginsThatAreNamedMayAsk) {
  const std::string keys = ::testing::TempDir() + "hearth_cors_keys";
  std::ofstream(keys) << "secret\n";
  const ServerProcess server(Stories(), {"--cors", "http://app.example:3000", "--cors",
                                         "https://other.example", "--api-key-file", keys});
  const std::string page = "Origin: http://app.example:3000\r\n";
  const auto preflight = [&](const std::string& origin) {
    HttpClient client = server.Connect();
    client.Send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin +
                "\r\nAccess-Control-Request-Method: POST\r\n"
                "Access-Control-Request-Headers: authorization,content-type\r\n\r\n");
    return client.ReadSome();
  };
  const std::string allowed = preflight("http://app.example:3000");
  EXPECT_THAT(allowed, StartsWith("HTTP/1.1 204 No Content\r\n"));
  EXPECT_THAT(allowed, HasSubstr("Access-Control-Allow-Origin: http://app.example:3000\r\n"));
  EXPECT_THAT(allowed, HasSubstr("Access-Control-Allow-Headers: authorization,content-type\r\n"));
  EXPECT_THAT(allowed, HasSubstr("Access-Control-Allow-Methods: GET, POST\r\n"));
  EXPECT_THAT(allowed, HasSubstr("Vary: Origin\r\n"));
  EXPECT_THAT(allowed, ::testing::Not(HasSubstr("Content-Length")));
  EXPECT_THAT(preflight("https://evil.example"), ::testing::Not(HasSubstr("Access-Control")));
  // The page's own request, a refused one and a stream.
  json request = Completion("a", 2);
  const std::string key = "X-Api-Key: secret\r\n";
  for (const bool stream : {false, true}) {
    request["stream"] = stream;
    const HttpResponse answer = server.Connect().Post("/v1/completions", request, page + key);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "http://app.example:3000");
  }
  const HttpResponse refused = server.Connect().Post("/v1/completions", request, page);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.count("access-control-allow-origin"), 1u) << "a page can read why";
  const std::string evil = "Origin: https://evil.example\r\n";
  EXPECT_EQ(server.Connect().Post("/v1/completions", request, evil + key).status, 403);
  EXPECT_EQ(
      server.Connect().Get("/v1/models", evil + key).headers.count("access-control-allow-origin"),
      0u);
}

TEST(ServeClientOptionsTest, AllPagesAndAllNamesOfTheHost) {
  const ServerProcess server(Stories(), {"--cors", "*", "--allow-no-key"});
  HttpClient client = server.Connect();
  client.Send("GET /v1/models HTTP/1.1\r\nHost: hearth.example\r\nOrigin: null\r\n\r\n");
  const HttpResponse answer = client.Read();
  EXPECT_EQ(answer.status, 200) << "a proxy's name for it";
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  for (const char* origin :
       {"example.com", "https://example.com/", "https://Example.com", "://a"}) {
    EXPECT_EQ(RunHearth({"serve", Stories(), "--port", "0", "--cors", origin}).exit_code, 2)
        << origin;
  }
}

}  // namespace
}  // namespace hearth
