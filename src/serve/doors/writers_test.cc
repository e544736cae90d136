// Events and documents of the Responses API and the Messages API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/doors/messages_writer.h"
#include "serve/doors/response_store.h"
#include "serve/doors/responses_writer.h"

namespace hearth::serve {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

AnswerHead Head() { return {AnswerKind::kResponse, "resp_1", 7, "m"}; }

// An answer that thinks, says something and calls two functions, in six pieces.
std::vector<Answer> Pieces() {
  std::vector<Answer> pieces(6);
  pieces[0].thoughts = "hm";
  pieces[1].text = "So";
  pieces[2].text = " be it";
  pieces[3].calls = {{0, "call_1", "f", "{\"a\""}};
  pieces[4].calls = {{0, "", "", ":1}"}};
  pieces[5].calls = {{1, "call_2", "g", "{}"}};
  pieces[5].finish_reason = api::FinishReason::kStop;
  pieces[5].ends_in_calls = true;
  return pieces;
}

Answer Whole() {
  Answer whole;
  whole.thoughts = "hm";
  whole.text = "So be it";
  whole.calls = {{0, "call_1", "f", "{\"a\":1}"}, {1, "call_2", "g", "{}"}};
  whole.finish_reason = api::FinishReason::kStop;
  whole.ends_in_calls = true;
  return whole;
}

std::vector<json> EventsOf(AnswerWriter& writer, const Usage& usage) {
  std::vector<json> events;
  const auto add = [&](const std::vector<StreamEvent>& some) {
    for (const StreamEvent& event : some) {
      events.push_back(json::parse(event.data));
      EXPECT_EQ(event.name, events.back()["type"]);
    }
  };
  bool first = true;
  for (const Answer& piece : Pieces()) add(writer.Delta(piece, std::exchange(first, false)));
  add(writer.End(usage));
  return events;
}

std::vector<std::string> TypesOf(const std::vector<json>& events) {
  std::vector<std::string> types;
  for (const json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(ResponsesWriterTest, AStreamEndsWithTheDocument) {
  const ResponsesRequest request = ParseResponsesRequest(R"({"input": "Hi"})");
  std::vector<api::ChatMessage> stored;
  const auto store = [&](api::ChatMessage answer) { stored.push_back(std::move(answer)); };
  const Usage usage = {.prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = 3};
  const auto streamed = NewResponsesWriter(Head(), request, store);
  const std::vector<json> events = EventsOf(*streamed, usage);
  const auto collected = NewResponsesWriter(Head(), request, store);
  EXPECT_EQ(events.back()["response"], json::parse(collected->Document({Whole()}, usage)));
  EXPECT_THAT(
      TypesOf(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.reasoning_text.delta", "response.reasoning_text.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done",
                  "response.content_part.done", "response.output_item.done",
                  "response.output_item.added", "response.function_call_arguments.delta",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  const json& output = events.back()["response"]["output"];
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    if (!events[i].contains("output_index")) continue;
    const std::string id =
        events[i].contains("item") ? events[i]["item"]["id"] : events[i]["item_id"];
    EXPECT_EQ(id, output[events[i]["output_index"].get<size_t>()]["id"]) << events[i];
  }
  ASSERT_EQ(stored.size(), 2u);
  for (const api::ChatMessage& answer : stored) {
    EXPECT_EQ(answer.content, "So be it");
    ASSERT_EQ(answer.tool_calls.size(), 2u);
    EXPECT_EQ(answer.tool_calls[0].arguments, "{\"a\":1}");
    EXPECT_EQ(answer.tool_calls[1].name, "g");
  }
}

TEST(ResponsesWriterTest, CustomToolsGetTheirText) {
  const ResponsesRequest request =
      ParseResponsesRequest(R"({"input": "Hi", "tools": [{"type": "custom", "name": "f"}]})");
  EXPECT_EQ(request.custom_tools.count("f"), 1u);
  Answer answer;
  answer.calls = {{0, "call_1", "f", R"({"input":"a \"b\""})"}};
  answer.finish_reason = api::FinishReason::kLength;
  const auto writer = NewResponsesWriter(Head(), request, {});
  const json document = json::parse(writer->Document({answer}, {}));
  EXPECT_EQ(document["output"][0]["type"], "custom_tool_call");
  EXPECT_EQ(document["output"][0]["input"], "a \"b\"");
  EXPECT_EQ(document["output"][0]["status"], "incomplete");
  EXPECT_EQ(document["status"], "incomplete");
  EXPECT_EQ(document["incomplete_details"]["reason"], "max_output_tokens");
}

TEST(ResponsesRequestTest, AdaptersAreListed) {
  EXPECT_FALSE(ParseResponsesRequest(R"({"input": "Hi"})").chat.settings.adapters.has_value());
  const auto adapters =
      ParseResponsesRequest(R"({"input": "Hi", "lora": [{"id": 3, "scale": 0.5}]})")
          .chat.settings.adapters;
  ASSERT_TRUE(adapters && adapters->size() == 1);
  EXPECT_EQ((*adapters)[0].id, 3);
  EXPECT_EQ((*adapters)[0].scale, 0.5f);
  EXPECT_THROW(ParseResponsesRequest(R"({"input": "Hi", "lora": 3})"), RequestError);
}

TEST(ResponsesRequestTest, ItemsBecomeMessages) {
  const ResponsesRequest request = ParseResponsesRequest(R"({"instructions": "Be kind.",
      "reasoning": {"effort": "low"}, "input": [
      {"role": "developer", "content": "Now."},
      {"type": "reasoning", "id": "rs_1", "summary": [],
       "content": [{"type": "reasoning_text", "text": "Four?"}]},
      {"role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "4"}]}]})");
  const auto& messages = request.chat.messages;
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "Wait.");
  EXPECT_EQ(messages[1].reasoning, "Four?");
  EXPECT_EQ(request.chat.variables, R"({"reasoning_effort":"low"})");
  ASSERT_EQ(messages[1].tool_calls.size(), 1u) << "a call belongs to the answer before it";
  EXPECT_EQ(messages[2].role, "tool");
  EXPECT_EQ(messages[2].content, "4");
  EXPECT_EQ(request.instructions, "Be kind.");
  for (const char* body : {R"({"input": [{"type": "computer_call"}]})",
                           R"({"input": "x", "tools": [{"type": "web_search"}]})",
                           R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
                           R"({"input": []})", R"({"input": "x", "conversation": "c"})",
                           R"({"input": "x", "nonsense": 1})", R"({})"}) {
    EXPECT_THROW(ParseResponsesRequest(body), RequestError) << body;
  }
}

TEST(MessagesWriterTest, BlocksAreOpenedAndClosedInOrder) {
  const Usage usage = {.prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = 3};
  const auto streamed = NewMessagesWriter(Head(), 5);
  const std::vector<json> events = EventsOf(*streamed, usage);
  EXPECT_THAT(TypesOf(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_delta", "content_block_stop", "content_block_start",
                          "content_block_delta", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "content_block_stop",
                          "message_delta", "message_stop"));
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "tool_use");
  const auto collected = NewMessagesWriter(Head(), 5);
  const json message = json::parse(collected->Document({Whole()}, usage));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["content"][0]["thinking"], "hm");
  EXPECT_EQ(message["content"][1]["text"], "So be it");
  EXPECT_EQ(message["content"][2]["id"], "toolu_1");
  EXPECT_EQ(message["content"][2]["input"], json({{"a", 1}}));
  EXPECT_EQ(message["usage"]["input_tokens"], 3);
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 2);
}

TEST(MessagesWriterTest, TheReasonForAnEndIsTold) {
  Answer answer;
  answer.text = "x";
  answer.finish_reason = api::FinishReason::kStop;
  const auto reason = [&] {
    return json::parse(NewMessagesWriter(Head(), 1)->Document({answer}, {}));
  };
  EXPECT_EQ(reason()["stop_reason"], "end_turn");
  answer.stop_text = "END";
  EXPECT_EQ(reason()["stop_reason"], "stop_sequence");
  EXPECT_EQ(reason()["stop_sequence"], "END");
  answer.finish_reason = api::FinishReason::kLength;
  EXPECT_EQ(reason()["stop_reason"], "max_tokens");
}

TEST(ResponseStoreTest, TheOldestGoFirst) {
  const auto allowance = std::make_shared<Allowance>(size_t{1} << 20);
  ResponseStore store(allowance, 5000);
  const auto put = [&](const std::string& id, size_t bytes) {
    store.Put(id, {{{.role = "user", .content = std::string(bytes, 'x')}}});
  };
  put("a", 1000);
  put("b", 1000);
  EXPECT_TRUE(store.Find("a"));  // which is the newest now
  put("c", 2000);
  EXPECT_TRUE(store.Find("a"));
  EXPECT_FALSE(store.Find("b"));
  put("d", 6000);  // more than there ever is
  EXPECT_FALSE(store.Find("d"));
  EXPECT_EQ(store.Find("c")->messages[0].content.size(), 2000u);
  AllowanceShare others(allowance);
  EXPECT_TRUE(others.Resize(size_t{700} << 10));
}

}  // namespace
}  // namespace hearth::serve
