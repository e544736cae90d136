#include "serve/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "serve/request_error.h"

namespace hearth::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kChat[] = R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}])";

ChatRequest ParseChat(const std::string& more) {
  return ParseChatRequest(kChat + (more.empty() ? "}" : ", " + more + "}"));
}

// The error of a chat request with these fields.
RequestError ChatError(const std::string& more) {
  try {
    ParseChat(more);
  } catch (const RequestError& error) {
    return error;
  }
  ADD_FAILURE() << "taken: " << more;
  return {Status::kOk, ""};
}

RequestError ErrorOf(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const RequestError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {Status::kOk, ""};
}

TEST(RequestsTest, AChatHasTheDefaultsOfTheApi) {
  const ChatRequest request = ParseChat("");
  EXPECT_EQ(request.settings.model, "m");
  EXPECT_EQ(request.settings.sampling.temperature, 1.0f);
  EXPECT_EQ(request.settings.sampling.top_p, 1.0f);
  EXPECT_EQ(request.settings.sampling.top_k, 0);
  EXPECT_FALSE(request.settings.max_tokens.has_value());
  EXPECT_FALSE(request.settings.stream);
  EXPECT_FALSE(request.settings.has_seed);
  EXPECT_EQ(request.settings.n, 1);
  ASSERT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.messages[0].content, "Hi");
}

TEST(RequestsTest, EveryParameterArrives) {
  const GenerationSettings s =
      ParseChat(R"("max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 9,
                   "min_p": 0.125, "repetition_penalty": 1.5, "seed": -1, "n": 3,
                   "stop": ["a", "b"], "presence_penalty": -1.5, "frequency_penalty": 2,
                   "logit_bias": {"5": -100, "70": 1.5}, "stream": true,
                   "stream_options": {"include_usage": true}, "logprobs": true,
                   "top_logprobs": 4, "response_format": {"type": "text"}, "user": null,
                   "tool_choice": null, "store": false, "service_tier": "auto")")
          .settings;
  EXPECT_EQ(s.max_tokens, 7);
  EXPECT_EQ(s.sampling.temperature, 0.5f);
  EXPECT_EQ(s.sampling.top_p, 0.25f);
  EXPECT_EQ(s.sampling.top_k, 9);
  EXPECT_EQ(s.sampling.min_p, 0.125f);
  EXPECT_EQ(s.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(s.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(s.has_seed);
  EXPECT_EQ(s.n, 3);
  EXPECT_THAT(s.stop, ElementsAre("a", "b"));
  EXPECT_EQ(s.sampling.presence_penalty, -1.5f);
  EXPECT_EQ(s.sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(s.sampling.logit_bias.at(5), -100.0f);
  EXPECT_EQ(s.sampling.logit_bias.at(70), 1.5f);
  EXPECT_TRUE(s.stream && s.include_usage);
  EXPECT_EQ(s.top_logprobs, 4);
  EXPECT_NO_THROW(ParseChat(R"("foo": null)")) << "as good as leaving it out";
}

TEST(RequestsTest, AdaptersAreListed) {
  EXPECT_FALSE(ParseChat("").settings.adapters.has_value()) << "the server's own scales";
  EXPECT_TRUE(ParseChat(R"("lora": [])").settings.adapters->empty()) << "none";
  const auto adapters =
      *ParseChat(R"("lora": [{"id": 1, "scale": 0.5}, {"id": 0, "scale": -2}])").settings.adapters;
  ASSERT_EQ(adapters.size(), 2u);
  EXPECT_EQ(adapters[0].id, 1);
  EXPECT_EQ(adapters[0].scale, 0.5f);
  EXPECT_EQ(adapters[1].scale, -2.0f);
  const std::pair<const char*, const char*> wrong[] = {
      {R"("lora": 1)", "lora"},
      {R"("lora": [1])", "lora[0]"},
      {R"("lora": [{"scale": 1}])", "lora[0].id"},
      {R"("lora": [{"id": 0}])", "lora[0].scale"},
      {R"("lora": [{"id": -1, "scale": 1}])", "lora[0].id"},
      {R"("lora": [{"id": 0, "scale": 1}, {"id": 1, "scale": "x"}])", "lora[1].scale"},
      {R"("lora": [{"id": 0, "scale": 1001}])", "lora[0].scale"},
      {R"("lora": [{"id": 0, "scale": 1, "x": 1}])", "lora[0].x"},
  };
  for (const auto& [fields, name] : wrong) EXPECT_EQ(ChatError(fields).param(), name) << fields;
}

TEST(RequestsTest, WhatIsNotThereIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("function_call": "auto")", "function_call"},
      {R"("functions": [{}])", "functions"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}})",
       "response_format.json_schema.x"},
      {R"("audio": {})", "audio"},
      {R"("modalities": ["audio"])", "modalities"},
      {R"("temprature": 1)", "temprature"},
      {R"("best_of": 2)", "best_of"},
  };
  for (const auto& [fields, name] : cases) {
    const RequestError error = ChatError(fields);
    EXPECT_EQ(error.status(), Status::kBadRequest);
    EXPECT_EQ(error.param(), name);
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
  EXPECT_THAT(ChatError(R"("functions": [{}])").what(), HasSubstr("use tools"));
}

TEST(RequestsTest, WhatHasNoEffectIsTaken) {
  for (const char* fields :
       {R"("user": "me")", R"("metadata": {"a": "b"})", R"("store": true)",
        R"("prompt_cache_key": "k")", R"("safety_identifier": "s")", R"("service_tier": "flex")",
        R"("reasoning_effort": "none")", R"("verbosity": "low")",
        R"("prediction": {"type": "content", "content": "x"})", R"("functions": [])",
        R"("function_call": "none")", R"("modalities": ["text"])"}) {
    EXPECT_NO_THROW(ParseChat(fields)) << fields;
  }
  EXPECT_THROW(ParseChat(R"("temprature": 1)"), RequestError);
  const std::string unknown = std::string(kChat) + R"(, "temprature": 1, "n": 2})";
  EXPECT_EQ(ParseChatRequest(unknown, {.lenient = true}).settings.n, 2);
  EXPECT_EQ(ErrorOf([&] {
              ParseChatRequest(std::string(kChat) + R"(, "audio": {}})", {.lenient = true});
            }).param(),
            "audio")
      << "what is known and would change the answer is refused in any case";
}

TEST(RequestsTest, VariablesOfTheTemplate) {
  EXPECT_EQ(ParseChat(R"("reasoning_effort": "low", "enable_thinking": true)").variables,
            R"({"enable_thinking":true,"reasoning_effort":"low"})");
  EXPECT_EQ(ParseChat(R"("chat_template_kwargs": {"a": 1}, "reasoning_effort": "low")").variables,
            R"({"a":1,"reasoning_effort":"low"})");
  EXPECT_EQ(ChatError(R"("reasoning_effort": 1)").param(), "reasoning_effort");
}

TEST(RequestsTest, WhatIsDoneAnywayMayBeAskedFor) {
  const auto settings = [](const char* fields) { return ParseChat(fields).settings; };
  EXPECT_EQ(settings(R"("max_tokens": 12.0, "max_completion_tokens": 12)").max_tokens, 12);
  EXPECT_EQ(settings(R"("max_tokens": 5, "max_completion_tokens": 9)").max_tokens, 5)
      << "both are upper bounds";
  EXPECT_EQ(settings(R"("max_completion_tokens": 9)").max_tokens, 9);
  EXPECT_EQ(settings(R"("top_k": 40.0)").sampling.top_k, 40);
  EXPECT_EQ(settings(R"("seed": 7.0)").sampling.seed, 7u);
  EXPECT_EQ(settings(R"("seed": -7.0)").sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_THAT(settings(R"("stop": "")").stop, ::testing::IsEmpty());
  EXPECT_THAT(settings(R"("stop": ["", "a"])").stop, ElementsAre("a"));
  EXPECT_FALSE(settings(R"("logprobs": false, "top_logprobs": 0)").top_logprobs.has_value());
  EXPECT_FALSE(settings(R"("stream_options": {"include_usage": true})").stream);
}

TEST(RequestsTest, HalfACharacterIsNamed) {
  const auto message = [](const std::string& text) {
    return std::string(
        ErrorOf([&] { ParseTokenizeRequest(R"({"content": ")" + text + "\"}"); }).what());
  };
  EXPECT_THAT(message("a \\ud83d b"), HasSubstr("byte 15: \\ud83d is a lone surrogate"));
  EXPECT_THAT(message("\\uDE00"), HasSubstr("\\uDE00 is a lone surrogate"));
  EXPECT_THAT(message("\\ud83d\\u0041"), HasSubstr("\\ud83d is a lone surrogate"));
  EXPECT_THAT(message("\\\\ud83d \\x"), HasSubstr("expected JSON in UTF-8"));
  EXPECT_EQ(ParseTokenizeRequest(R"({"content": "\ud83d\ude00"})").content, "\xf0\x9f\x98\x80");
}

TEST(RequestsTest, AbsurdValuesAreRefusedByName) {
  for (const char* fields : {R"("temperature": -0.1)",
                             R"("temperature": 2.1)",
                             R"("temperature": "hot")",
                             R"("temperature": true)",
                             R"("top_p": 1.5)",
                             R"("top_k": -1)",
                             R"("top_k": 1.5)",
                             R"("max_tokens": 0)",
                             R"("max_tokens": -5)",
                             R"("max_tokens": 1e30)",
                             R"("max_tokens": 99999999999999999999)",
                             R"("max_tokens": 18446744073709551615)",
                             R"("n": 0)",
                             R"("n": 129)",
                             R"("seed": 1.5)",
                             R"("seed": "1")",
                             R"("stop": [1])",
                             R"("stop": {"a": 1})",
                             R"("stream": "yes")",
                             R"("stream": 1)",
                             R"("stream": true, "stream_options": {"include": true})",
                             R"("presence_penalty": 3)",
                             R"("frequency_penalty": -3)",
                             R"("logit_bias": [1])",
                             R"("logit_bias": {"x": 1})",
                             R"("logit_bias": {"-1": 1})",
                             R"("logit_bias": {"1": 101})",
                             R"("logit_bias": {"1": "a"})",
                             R"("logit_bias": {"99999999999": 1})",
                             R"("logprobs": 5)",
                             R"("top_logprobs": 3)",
                             R"("logprobs": true, "top_logprobs": 21)",
                             R"("max_tokens": 12.5)",
                             R"("max_completion_tokens": 0.0)",
                             R"("response_format": "text")",
                             R"("response_format": {"type": "xml"})"}) {
    const RequestError error = ChatError(fields);
    EXPECT_EQ(error.status(), Status::kBadRequest) << fields;
    EXPECT_NE(error.param(), "") << fields;
    EXPECT_TRUE(nlohmann::json::accept(error.ToJson()));
  }
}

TEST(RequestsTest, MessagesAreTextsOfKnownRoles) {
  const auto parse = [](const std::string& messages) {
    return ParseChatRequest(R"({"messages": )" + messages + "}").messages;
  };
  const auto read = parse(R"([{"role": "developer", "content": "Be kind."},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c"}])");
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].role, "system");
  EXPECT_EQ(read[1].content, "ab");
  // What the official client sends back of an answer that it got.
  const auto sent_back = parse(R"([{"role": "assistant", "content": "c", "refusal": null,
      "annotations": null, "audio": null, "function_call": null, "tool_calls": null}])");
  EXPECT_EQ(sent_back[0].content, "c");
  // Clients annotate, and send back what other servers gave them.
  const auto annotated = parse(R"([{"role": "user", "name": "me", "id": 5, "content":
      [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
      {"role": "assistant", "content": null, "tool_calls": [], "reasoning_content": "why"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
      {"role": "assistant"}, {"role": "user", "content": "x", "tool_calls": []}])");
  ASSERT_EQ(annotated.size(), 5u);
  EXPECT_EQ(annotated[0].content, "x");
  EXPECT_EQ(annotated[1].content, "");
  EXPECT_EQ(annotated[2].content, "No.");
  const std::pair<const char*, const char*> refused[] = {
      {"[]", "messages"},
      {"null", "messages"},
      {R"("Hi")", "messages"},
      {R"([1])", "messages[0]"},
      {R"([{"content": "x"}])", "messages[0].role"},
      {R"([{"role": "cat", "content": "x"}])", "messages[0].role"},
      {R"([{"role": "function", "content": "x"}])", "messages[0].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": null}])", "messages[0].content"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content[0].type"},
      {R"([{"role": "user", "content": [5]}])", "messages[0].content[0]"},
      {R"([{"role": "assistant", "content": 5}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 5}]}])",
       "messages[0].content[0].text"},
      {R"([{"role": "assistant", "content": "x", "function_call": {}}])",
       "messages[0].function_call"},
  };
  for (const auto& [messages, param] : refused) {
    EXPECT_EQ(ErrorOf([&, text = messages] { parse(text); }).param(), param) << messages;
  }
}

TEST(RequestsTest, ToolsArrive) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "get_weather", "description": "It rains.",
         "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}, "strict": true}},
         {"type": "function", "function": {"name": "now"}}])";
  const api::ToolOptions options = ParseChat(tools).tools;
  ASSERT_EQ(options.tools.size(), 2u);
  EXPECT_EQ(options.tools[0].name, "get_weather");
  EXPECT_EQ(options.tools[0].description, "It rains.");
  EXPECT_EQ(options.tools[0].parameters, R"({"type":"object","properties":{"z":{},"a":{}}})")
      << "in the order of the request";
  EXPECT_TRUE(options.tools[0].strict);
  EXPECT_EQ(options.tools[1].parameters, "");
  EXPECT_FALSE(options.must_call);
  EXPECT_TRUE(options.parallel);
  const auto choose = [&](const std::string& choice) {
    return ParseChat(tools + R"(, "parallel_tool_calls": false, "tool_choice": )" + choice).tools;
  };
  EXPECT_FALSE(choose(R"("auto")").must_call);
  EXPECT_FALSE(choose(R"("auto")").parallel);
  EXPECT_TRUE(choose(R"("none")").tools.empty());
  EXPECT_TRUE(choose(R"("required")").must_call);
  const auto named = choose(R"({"type": "function", "function": {"name": "now"}})");
  EXPECT_TRUE(named.must_call);
  EXPECT_EQ(named.function, "now");
  for (const char* nothing :
       {R"("tools": [], "tool_choice": null)", R"("tool_choice": "none")",
        R"("tools": [], "tool_choice": "auto")", R"("parallel_tool_calls": false)"}) {
    EXPECT_TRUE(ParseChat(nothing).tools.tools.empty());
  }
}

TEST(RequestsTest, ToolsAreRefusedByName) {
  const std::string now = R"("tools": [{"type": "function", "function": {"name": "now"}}])";
  const auto with = [](const std::string& function) {
    return R"("tools": [{"type": "function", "function": )" + function + "}]";
  };
  const std::string at = "tools[0].function";
  const std::pair<std::string, std::string> cases[] = {
      {R"("tools": {})", "tools"},
      {R"("tools": [5])", "tools[0]"},
      {R"("tools": [{"type": "custom"}])", "tools[0].type"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"type": "function", "function": {"name": "a"}, "x": 1}])", "tools[0].x"},
      {with("{}"), at + ".name"},
      {with(R"({"name": ""})"), at + ".name"},
      {with(R"({"name": "a b"})"), at + ".name"},
      {with(R"({"name": "é"})"), at + ".name"},
      {with("{\"name\": \"" + std::string(65, 'a') + "\"}"), at + ".name"},
      {with(R"({"name": "a", "description": 5})"), at + ".description"},
      {with(R"({"name": "a", "parameters": []})"), at + ".parameters"},
      {with(R"({"name": "a", "strict": "yes"})"), at + ".strict"},
      {with(R"({"name": "a", "returns": {}})"), at + ".returns"},
      {R"("tools": [{"type": "function", "function": {"name": "a"}},
                    {"type": "function", "function": {"name": "a"}}])",
       "tools[1].function.name"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": {"type": "function", "function": {"name": "now"}})", "tool_choice"},
      {now + R"(, "tool_choice": "any")", "tool_choice"},
      {now + R"(, "tool_choice": 5)", "tool_choice"},
      {now + R"(, "tool_choice": {"type": "function"})", "tool_choice.function"},
      {now + R"(, "tool_choice": {"type": "x", "function": {"name": "now"}})", "tool_choice.type"},
      {now + R"(, "tool_choice": {"type": "function", "function": {"name": "rm"}})",
       "tool_choice.function.name"},
      {now + R"(, "parallel_tool_calls": 1)", "parallel_tool_calls"},
  };
  for (const auto& [fields, param] : cases) EXPECT_EQ(ChatError(fields).param(), param) << fields;
  std::string many = "\"tools\": [";
  for (int i = 0; i < 129; ++i) {
    many += (i == 0 ? "" : ", ") + std::string(R"({"type": "function", "function": {"name": "f)") +
            std::to_string(i) + "\"}}";
  }
  EXPECT_EQ(ChatError(many + "]").param(), "tools");
}

TEST(RequestsTest, MessagesOfToolsArrive) {
  const auto parse = [](const std::string& messages) {
    return ParseChatRequest(R"({"messages": )" + messages + "}").messages;
  };
  const std::string call =
      R"({"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
          "function": {"name": "now", "arguments": "{\"a\": 1}"}}]})";
  const auto read = parse("[" + call + R"(, {"role": "tool", "tool_call_id": "call_1",
      "name": "now", "content": [{"type": "text", "text": "noon"}]}])");
  ASSERT_EQ(read.size(), 2u);
  ASSERT_EQ(read[0].tool_calls.size(), 1u);
  EXPECT_EQ(read[0].content, "");
  EXPECT_EQ(read[0].tool_calls[0].id, "call_1");
  EXPECT_EQ(read[0].tool_calls[0].name, "now");
  EXPECT_EQ(read[0].tool_calls[0].arguments, R"({"a": 1})");
  EXPECT_EQ(read[1].role, "tool");
  EXPECT_EQ(read[1].tool_call_id, "call_1");
  EXPECT_EQ(read[1].content, "noon");
  const auto called = [](const std::string& entry) {
    return R"([{"role": "assistant", "tool_calls": [)" + entry + "]}]";
  };
  const std::string first = "messages[0].tool_calls[0]";
  const std::pair<std::string, std::string> refused[] = {
      {R"([{"role": "tool", "content": "x"}])", "messages[0].tool_call_id"},
      {R"([{"role": "tool", "tool_call_id": "call_1", "content": "x"}])",
       "messages[0].tool_call_id"},
      {"[" + call + R"(, {"role": "tool", "tool_call_id": "call_1"}])", "messages[1].content"},
      {"[" + call + R"(, {"role": "tool", "tool_call_id": "call_2", "content": "x"}])",
       "messages[1].tool_call_id"},
      {called("5"), first},
      {called(R"({"type": "function", "function": {"name": "a", "arguments": ""}})"),
       first + ".id"},
      {called(R"({"id": "a", "function": {"name": "a", "arguments": ""}})"), first + ".type"},
      {called(R"({"id": "a", "type": "function"})"), first + ".function"},
      {called(R"({"id": "a", "type": "function", "function": {"arguments": ""}})"),
       first + ".function.name"},
      {called(R"({"id": "a", "type": "function", "function": {"name": "a", "arguments": {}}})"),
       first + ".function.arguments"},
  };
  for (const auto& [messages, param] : refused) {
    EXPECT_EQ(ErrorOf([&, text = messages] { parse(text); }).param(), param) << messages;
  }
}

TEST(RequestsTest, CompletionsTakeTextsAndTokens) {
  const auto parse = [](const std::string& prompt, const std::string& more = "") {
    return ParseCompletionRequest(R"({"prompt": )" + prompt + more + "}");
  };
  EXPECT_EQ(std::get<std::string>(parse(R"("Once")").prompts.at(0)), "Once");
  EXPECT_EQ(parse(R"("Once")").settings.max_tokens, 16) << "the default of the API";
  EXPECT_EQ(parse(R"(["a", "b"])").prompts.size(), 2u);
  EXPECT_THAT(std::get<1>(parse("[1, 2, 3]").prompts.at(0)), ElementsAre(1, 2, 3));
  EXPECT_THAT(std::get<1>(parse("[[1], [2, 3]]").prompts.at(1)), ElementsAre(2, 3));
  EXPECT_EQ(
      parse(R"("x")", R"(, "logprobs": 5, "best_of": 1, "echo": false)").settings.top_logprobs, 5);
  EXPECT_TRUE(parse(R"("x")", R"(, "echo": true, "max_tokens": 0)").settings.echo);
  EXPECT_EQ(ErrorOf([&] { parse(R"("x")", R"(, "max_tokens": 0)"); }).param(), "max_tokens");
  for (const char* prompt : {"null", "5", "[]", "{}", "[[]]", "[-1]", "[1.5]", "[4294967296]",
                             "[1, \"a\"]", "[[\"a\"]]", "[null]"}) {
    EXPECT_EQ(ErrorOf([&] { parse(prompt); }).param(), "prompt") << prompt;
  }
  EXPECT_EQ(ErrorOf([&] { parse(R"("x")", R"(, "suffix": "y")"); }).param(), "suffix");
  EXPECT_NO_THROW(parse(R"("x")", R"(, "suffix": "", "best_of": 1.0, "logprobs": false)"));
  EXPECT_THAT(std::get<1>(parse("[1.0, 2]").prompts.at(0)), ElementsAre(1, 2));
  EXPECT_EQ(ErrorOf([&] { parse(R"("x")", R"(, "messages": [])"); }).param(), "messages");
  EXPECT_EQ(ErrorOf([&] { parse(R"(["a", "b"])", R"(, "n": 128)"); }).param(), "n");
}

TEST(RequestsTest, TheOtherEndpoints) {
  EXPECT_TRUE(ParseEmbeddingsRequest(R"({"input": "x", "encoding_format": "base64"})").as_base64);
  EXPECT_EQ(ParseEmbeddingsRequest(R"({"input": "x", "dimensions": 3.0})").dimensions, 3);
  EXPECT_NO_THROW(ParseEmbeddingsRequest(R"({"input": "x", "user": "me", "metadata": {}})"));
  EXPECT_EQ(ErrorOf([] { ParseEmbeddingsRequest("{}"); }).param(), "input");
  const auto embed = [](int texts) {
    const nlohmann::json body = {{"input", std::vector<std::string>(texts, "a")}};
    return ParseEmbeddingsRequest(body.dump()).inputs.size();
  };
  EXPECT_EQ(embed(2048), 2048u);
  EXPECT_EQ(ErrorOf([&] { embed(2049); }).param(), "input");
  EXPECT_TRUE(ParseTokenizeRequest(R"({"content": "x", "add_special": true})").add_special);
  EXPECT_EQ(ErrorOf([] { ParseTokenizeRequest("{}"); }).param(), "content");
  EXPECT_THAT(ParseDetokenizeRequest(R"({"tokens": [1, 2]})").tokens, ElementsAre(1, 2));
  EXPECT_TRUE(ParseDetokenizeRequest(R"({"tokens": []})").tokens.empty());
  EXPECT_EQ(ErrorOf([] { ParseDetokenizeRequest(R"({"tokens": ["a"]})"); }).param(), "tokens");
}

TEST(RequestsTest, BytesThatAreNoRequest) {
  std::string deep(1000, '[');
  std::string many = "[";
  for (int i = 0; i < 200'000; ++i) many += "1,";
  many += "1]";
  std::string wide = "{\"logit_bias\": {\"0\": 1";
  for (int i = 1; i < 3000; ++i) wide += ", \"" + std::to_string(i) + "\": 1";
  wide += "}}";
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("5"),
        std::string("{\"messages\": \"\xff\xfe\"}"), std::string("{} {}"), std::string("{'a': 1}"),
        std::string("{\"a\": NaN}"), std::string("{\"a\": 1e999}"), std::string("\0\0", 2), deep,
        many, "{\"prompt\": " + many + "}", std::string("{\"a\": \"\\ud800\"}"),
        std::string("\xef\xbb\xbf{"), wide}) {
    EXPECT_EQ(ErrorOf([&] { ParseChatRequest(body); }).status(), Status::kBadRequest);
    EXPECT_EQ(ErrorOf([&] { ParseCompletionRequest(body); }).status(), Status::kBadRequest);
    EXPECT_EQ(ErrorOf([&] { ParseEmbeddingsRequest(body); }).status(), Status::kBadRequest);
    EXPECT_EQ(ErrorOf([&] { ParseTokenizeRequest(body); }).status(), Status::kBadRequest);
    EXPECT_EQ(ErrorOf([&] { ParseDetokenizeRequest(body); }).status(), Status::kBadRequest);
  }
}

// Each is looked at once: a parser that looks through a list for every object in it takes seconds.
TEST(RequestsTest, ReadsListsOfManyObjects) {
  for (const std::string& value : {std::string("{}"), std::string("[]"), std::string("\"\"")}) {
    std::string list = "[" + value;
    for (int i = 1; i < 131'000; ++i) list += "," + value;
    list += "]";
    EXPECT_EQ(ErrorOf([&] { ParseChatRequest("{\"messages\": " + list + "}"); }).param(),
              "messages");
    EXPECT_EQ(ErrorOf([&] { ParseEmbeddingsRequest("{\"input\": " + list + "}"); }).param(),
              "input");
  }
}

// Whatever is cut off or changed: a request, or an error that says so.
TEST(RequestsTest, AlteredBytesAreTakenOrRefused) {
  const std::string body =
      R"({"model": "m", "messages": [{"role": "user", "content": "H\u00e9llo"}], "stop": ["a"],
          "seed": 5, "logit_bias": {"5": 1}, "stream": true, "stream_options": {}})";
  std::mt19937 random(1);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string altered = body.substr(0, trial % 3 == 0 ? random() % body.size() : body.size());
    for (size_t changes = random() % 4; changes > 0 && !altered.empty(); --changes) {
      altered[random() % altered.size()] = static_cast<char>(random());
    }
    try {
      ParseChatRequest(altered);
    } catch (const RequestError& error) {
      EXPECT_TRUE(nlohmann::json::accept(error.ToJson()));
    }
  }
}

}  // namespace
}  // namespace hearth::serve
