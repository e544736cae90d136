// Tools in `hearth serve`: a small model that knows none is made to call them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "serve_requests.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr char kPath[] = "/v1/chat/completions";

// A copy of the model with a longer context and, where they are not empty, another chat template
// and `marker` as one of its control tokens.
std::string Changed(const std::string& name, const std::string& chat_template,
                    const std::string& marker) {
  const GgufFile file = GgufFile::Open(Stories());
  GgufMetadata metadata = file.metadata();
  metadata.SetUint32("llama.context_length", 1500);
  if (!chat_template.empty()) metadata.SetString("tokenizer.chat_template", chat_template);
  if (!marker.empty()) {
    constexpr size_t kRareToken = 2000;
    std::vector<std::string> texts = *metadata.FindStrings("tokenizer.ggml.tokens");
    const auto kinds = *metadata.FindInts("tokenizer.ggml.token_type");
    std::vector<int32_t> types(kinds.begin(), kinds.end());
    texts.at(kRareToken) = marker;
    types.at(kRareToken) = 3;  // control
    metadata.SetStrings("tokenizer.ggml.tokens", texts);
    metadata.SetInt32s("tokenizer.ggml.token_type", types);
  }
  std::vector<GgufTensorDecl> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back(
        {tensor.name, tensor.dtype,
         std::vector<uint64_t>(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims)});
  }
  const std::string path = ::testing::TempDir() + "hearth_" + name + ".gguf";
  GgufWriter writer(path, metadata, tensors);
  for (const GgufTensor& tensor : file.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    file.ReadTensor(tensor, 0, bytes);
    writer.Append(bytes);
  }
  writer.Finish();
  return path;
}

json Tools(bool strict = false) {
  return json::array({{{"type", "function"},
                       {"function",
                        {{"name", "get_weather"},
                         {"description", "Tells the weather."},
                         {"strict", strict},
                         {"parameters", json::parse(R"({"type": "object", "properties": {
              "city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1,
              "maximum": 9}}, "required": ["city", "days"], "additionalProperties": false})")}}}},
                      {{"type", "function"}, {"function", {{"name", "now"}, {"strict", strict}}}}});
}

json Request(const json& choice) {
  return {{"messages", {{{"role", "user"}, {"content", "How is the weather?"}}}},
          {"tools", Tools()},
          {"tool_choice", choice},
          {"max_tokens", 200},
          {"seed", 5}};
}

json Named(const std::string& name) {
  return {{"type", "function"}, {"function", {{"name", name}}}};
}

// The calls of an answer must fit the tools; of one that was cut off all but the last.
void ExpectCallsFit(const json& answer) {
  std::set<std::string> ids;
  json calls = answer["message"].value("tool_calls", json::array());
  if (answer["finish_reason"] == "length" && !calls.empty()) calls.erase(calls.size() - 1);
  for (const json& call : calls) {
    EXPECT_EQ(call["type"], "function");
    EXPECT_THAT(call["id"].get<std::string>(), MatchesRegex("call_[0-9A-Za-z]+"));
    EXPECT_TRUE(ids.insert(call["id"]).second) << "ids differ";
    const json arguments =
        json::parse(call["function"]["arguments"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << call;
    if (call["function"]["name"] == "now") {
      EXPECT_TRUE(arguments.empty()) << call;
      continue;
    }
    EXPECT_EQ(call["function"]["name"], "get_weather");
    EXPECT_TRUE(arguments["city"] == "Oslo" || arguments["city"] == "Rome") << call;
    EXPECT_GE(arguments["days"].get<int>(), 1);
    EXPECT_LE(arguments["days"].get<int>(), 9);
  }
}

// The message that the parts of a stream add up to, and how they end.
struct Streamed {
  json message = {{"content", nullptr}};
  json finish_reason;
};
Streamed Sum(const std::vector<json>& events) {
  Streamed sum;
  for (const json& event : events) {
    for (const json& choice : event["choices"]) {
      const json& delta = choice["delta"];
      if (!choice["finish_reason"].is_null()) sum.finish_reason = choice["finish_reason"];
      if (delta.contains("content") && !delta["content"].is_null()) {
        sum.message["content"] =
            (sum.message["content"].is_null() ? "" : sum.message["content"].get<std::string>()) +
            delta["content"].get<std::string>();
      }
      for (const json& part : delta.value("tool_calls", json::array())) {
        json& calls = sum.message["tool_calls"];
        if (part.contains("id")) {
          EXPECT_EQ(part["index"], calls.size()) << "calls come in order";
          EXPECT_TRUE(part["function"].contains("name"));
          calls.push_back(part);
          calls.back().erase("index");
          continue;
        }
        json& arguments = calls.at(part["index"].get<size_t>())["function"]["arguments"];
        arguments = arguments.get<std::string>() + part["function"]["arguments"].get<std::string>();
      }
    }
  }
  return sum;
}

json WithoutIds(json message) {
  message.erase("role");
  message.erase("refusal");
  if (message.contains("tool_calls")) {
    for (json& call : message["tool_calls"]) call.erase("id");
  }
  return message;
}

class ServeToolsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = Changed("tools", "", "");
    server_ = new ServerProcess(model_, {"--parallel", "4", "--threads", "2"});
  }
  static void TearDownTestSuite() {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    delete server_;
    std::remove(model_.c_str());
  }
  static json Ask(const json& request) {
    const HttpResponse response = server_->Connect().Post(kPath, request);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.Json();
  }

  static std::string model_;
  static ServerProcess* server_;
};
std::string ServeToolsTest::model_;
ServerProcess* ServeToolsTest::server_ = nullptr;

TEST_F(ServeToolsTest, RequiredAndNamedFunctionsAreCalled) {
  for (const json& choice : {json("required"), Named("now"), Named("get_weather")}) {
    for (const bool parallel : {false, true}) {
      json request = Request(choice);
      request["parallel_tool_calls"] = parallel;
      const json answer = Ask(request)["choices"][0];
      EXPECT_TRUE(answer["message"]["content"].is_null()) << answer;
      ASSERT_FALSE(answer["message"]["tool_calls"].empty());
      // A model that knows no end calls until it is cut off.
      const bool is_one = !parallel || choice.is_object();
      if (is_one || answer["finish_reason"] != "length") {
        EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer;
      }
      if (is_one) {
        EXPECT_EQ(answer["message"]["tool_calls"].size(), 1u) << "a named function once";
      }
      ExpectCallsFit(answer);
      if (choice.is_object()) {
        EXPECT_EQ(answer["message"]["tool_calls"][0]["function"]["name"],
                  choice["function"]["name"]);
      }
    }
  }
}

TEST_F(ServeToolsTest, AStreamAddsUpToTheWholeAnswer) {
  for (json request : {Request("required"), Request("auto"), Request(Named("get_weather"))}) {
    const json whole = Ask(request)["choices"][0];
    request["stream"] = true;
    const HttpResponse response = server_->Connect().Post(kPath, request);
    ASSERT_EQ(response.status, 200) << response.body;
    const Streamed sum = Sum(response.Events());
    EXPECT_EQ(WithoutIds(sum.message), WithoutIds(whole["message"]));
    EXPECT_EQ(sum.finish_reason, whole["finish_reason"]);
    ExpectCallsFit({{"message", sum.message}, {"finish_reason", sum.finish_reason}});
    const json first = response.Events().front()["choices"][0]["delta"];
    EXPECT_EQ(first["role"], "assistant");
  }
}

TEST_F(ServeToolsTest, WhoMayAnswerInWordsDoes) {
  json request = Request("auto");
  request["max_tokens"] = 40;
  for (const bool strict : {false, true}) {
    request["tools"] = Tools(strict);
    const json answer = Ask(request)["choices"][0];
    EXPECT_FALSE(answer["message"].contains("tool_calls")) << "stories know no tools";
    EXPECT_NE(answer["message"]["content"], "");
    EXPECT_NE(answer["finish_reason"], "tool_calls");
  }
  request["tool_choice"] = "none";
  const json without = Ask(request);
  EXPECT_LT(without["usage"]["prompt_tokens"].get<int>(), 60) << "nothing is told of tools";
}

TEST_F(ServeToolsTest, AnswersInTextKeepToTheResponseFormat) {
  json request = Request("auto");
  request["temperature"] = 2;
  request["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "a"}, {"schema", {{"enum", {"yes", "no"}}}}}}};
  for (int seed = 1; seed < 6; ++seed) {
    request["seed"] = seed;
    const json answer = Ask(request)["choices"][0];
    ExpectCallsFit(answer);
    const bool calls = answer["message"].contains("tool_calls");
    EXPECT_EQ(answer["finish_reason"], calls ? "tool_calls" : "stop");
    if (!calls) {
      EXPECT_THAT(answer["message"]["content"].get<std::string>(),
                  ::testing::AnyOf("\"yes\"", "\"no\""));
    }
  }
}

TEST_F(ServeToolsTest, SeveralAnswersAndScores) {
  json request = Request("required");
  request["n"] = 3;
  request["logprobs"] = true;
  request["parallel_tool_calls"] = false;
  const json answer = Ask(request);
  std::set<std::string> ids;
  for (const json& choice : answer["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    ExpectCallsFit(choice);
    for (const json& call : choice["message"]["tool_calls"]) {
      EXPECT_TRUE(ids.insert(call["id"]).second) << "ids differ over all answers";
    }
    std::string raw;
    for (const json& token : choice["logprobs"]["content"]) raw += token["token"];
    EXPECT_THAT(raw, StartsWith("<tool_call>")) << "all tokens are scored";
  }
}

TEST_F(ServeToolsTest, WhatIsCutOffIsSaidSo) {
  json request = Request(Named("get_weather"));
  request["max_tokens"] = 40;
  const json length = Ask(request)["choices"][0];
  request["max_tokens"] = 200;
  const json whole = Ask(request)["choices"][0];
  if (length["finish_reason"] == "length" && length["message"].contains("tool_calls")) {
    EXPECT_THAT(whole["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>(),
                StartsWith(length["message"]["tool_calls"][0]["function"]["arguments"]));
  }
  request["stop"] = "\"days\"";
  const json stopped = Ask(request)["choices"][0];
  EXPECT_EQ(stopped["finish_reason"], "stop") << "this call is not whole";
  EXPECT_THAT(stopped["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>(),
              HasSubstr("\"city\""));
}

TEST_F(ServeToolsTest, ResultsContinueTheConversation) {
  json request = Request("required");
  request["parallel_tool_calls"] = false;
  const json first = Ask(request);
  const json& message = first["choices"][0]["message"];
  request["messages"].push_back(message);
  request["messages"].push_back({{"role", "tool"},
                                 {"tool_call_id", message["tool_calls"][0]["id"]},
                                 {"content", "It rains."}});
  request["tool_choice"] = "auto";
  const json second = Ask(request);
  EXPECT_GT(second["usage"]["prompt_tokens"], first["usage"]["prompt_tokens"]);
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  // Also where the tools are not offered again.
  request.erase("tools");
  request.erase("tool_choice");
  request.erase("parallel_tool_calls");
  EXPECT_FALSE(Ask(request)["choices"][0]["message"].contains("tool_calls"));
}

TEST_F(ServeToolsTest, SchemasThatCannotBeKeptToAreRefusedByNameWhereCallsAreStrict) {
  json request = Request("required");
  json& function = request["tools"][0]["function"];
  function["parameters"]["properties"]["city"] = {{"contains", json::object()}};
  function["strict"] = true;
  const HttpResponse refused = server_->Connect().Post(kPath, request);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("get_weather"));
  EXPECT_THAT(refused.body, HasSubstr("'contains'"));
  // Where nothing is promised it is only told, and arguments are any object.
  function["strict"] = false;
  EXPECT_TRUE(Ask(request).contains("choices"));
  request["tool_choice"] = "auto";
  EXPECT_TRUE(Ask(request).contains("choices"));
}

// A template that opens a block of thoughts: what is in it is told apart, and grammars begin after
// it.
TEST(ServeThinkingTest, ThoughtsAreToldApartFromTheAnswer) {
  const std::string model = Changed(
      "thinking",
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>"
      "\n\n</think>\n\n{% else %}<think>\n{% endif %}",
      "</think>");
  ServerProcess server(model, {"--threads", "2"});
  json request = {{"messages", {{{"role", "user"}, {"content", "Tell me a story about a fox."}}}},
                  {"max_tokens", 20},
                  {"seed", 5},
                  {"logit_bias", EndlessBias()}};
  const auto ask = [&] { return server.Connect().Post(kPath, request); };
  const json open = ask().Json()["choices"][0]["message"];
  EXPECT_EQ(open["content"], "") << "20 tokens end in the thoughts";
  EXPECT_GT(open["reasoning_content"].get<std::string>().size(), 10u);
  for (const bool as_variable : {false, true}) {
    json quiet = request;
    if (as_variable) {
      quiet["chat_template_kwargs"] = {{"enable_thinking", false}};
    } else {
      quiet["enable_thinking"] = false;
    }
    const json message = server.Connect().Post(kPath, quiet).Json()["choices"][0]["message"];
    EXPECT_FALSE(message.contains("reasoning_content"));
    EXPECT_GT(message["content"].get<std::string>().size(), 10u);
  }
  request["chat_template_kwargs"] = {{"messages", json::array()}};
  EXPECT_EQ(ask().Json()["error"]["param"], "chat_template_kwargs.messages");
  request.erase("chat_template_kwargs");
  request["response_format"] = {{"type", "json_schema"},
                                {"json_schema", {{"schema", {{"enum", {"yes", "no"}}}}}}};
  for (const bool ends_thoughts : {false, true}) {
    if (ends_thoughts) request["logit_bias"]["2000"] = 100;
    for (const bool stream : {false, true}) {
      request["stream"] = stream;
      const HttpResponse response = ask();
      ASSERT_EQ(response.status, 200) << response.body;
      std::string thoughts, content;
      for (const json& part : stream ? response.Events() : std::vector<json>{response.Json()}) {
        const json& choice = part["choices"][0];
        const json& message = stream ? choice["delta"] : choice["message"];
        thoughts += message.value("reasoning_content", "");
        content += message.value("content", "");
      }
      EXPECT_EQ(thoughts.empty(), ends_thoughts) << thoughts;
      if (ends_thoughts) {
        EXPECT_THAT(content, ::testing::AnyOf("\"yes\"", "\"no\""));
      } else {
        EXPECT_EQ(content, "");
      }
    }
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  std::remove(model.c_str());
}

// Other families: their templates teach how they call, and control tokens mark it.
TEST(ServeToolFamiliesTest, CallAsTheirTemplatesTeach) {
  const std::string messages =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}"
      "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}\n{% endfor %}"
      "{% if tools %}{{ tools|tojson }}";
  const struct {
    const char* name;
    std::string chat_template;
    const char* marker;
    const char* begin;
  } families[] = {
      {"mistral", messages + "{% if false %}[TOOL_CALLS]{% endif %}{% endif %}", "[TOOL_CALLS]",
       "["},
      {"llama3",
       messages + "{% if false %}<|start_header_id|>\"parameters\": {% endif %}{% endif %}", "",
       "{"},
  };
  for (const auto& family : families) {
    const std::string model = Changed(family.name, family.chat_template, family.marker);
    ServerProcess server(model, {"--threads", "2"});
    for (const json& choice : {json("required"), Named("get_weather")}) {
      json request = Request(choice);
      request["logprobs"] = true;
      const HttpResponse response = server.Connect().Post(kPath, request);
      ASSERT_EQ(response.status, 200) << response.body;
      const json answer = response.Json()["choices"][0];
      EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer;
      EXPECT_TRUE(answer["message"]["content"].is_null()) << answer;
      ASSERT_FALSE(answer["message"]["tool_calls"].empty()) << answer;
      ExpectCallsFit(answer);
      std::string raw;
      for (const json& token : answer["logprobs"]["content"]) raw += token["token"];
      EXPECT_THAT(raw, HasSubstr(family.begin));
      EXPECT_EQ(raw.find("tool_call"), std::string::npos) << "not in another family's way";
    }
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0);
    std::remove(model.c_str());
  }
}

}  // namespace
}  // namespace hearth
