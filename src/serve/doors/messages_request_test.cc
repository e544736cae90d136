#include "serve/doors/messages_request.h"

#include <gtest/gtest.h>

#include "serve/request_error.h"

namespace hearth::serve {
namespace {

TEST(MessagesRequestTest, BlocksBecomeMessages) {
  const ChatRequest request = ParseMessagesRequest(R"({"model": "m", "max_tokens": 9,
      "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
      "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
          {"type": "text", "text": "Wait."}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": true, "content": "no"},
          {"type": "text", "text": "And?"}]}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"},
      "thinking": {"type": "disabled"}, "metadata": {"user_id": "u"}, "stop_sequences": ["END"]})",
                                                   false);
  EXPECT_EQ(request.settings.names.json_schema, "output_format");
  const auto& messages = request.messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[2].content, "Wait.");
  EXPECT_EQ(messages[2].reasoning, "hm");
  EXPECT_EQ(messages[2].tool_calls.at(0).arguments, "{\"a\":1}");
  EXPECT_EQ(messages[3].role, "tool");
  EXPECT_EQ(messages[3].content, "Error: no");
  EXPECT_EQ(messages[4].content, "And?");
  EXPECT_TRUE(request.tools.must_call);
  EXPECT_EQ(request.settings.max_tokens, 9);
  EXPECT_EQ(request.settings.stop.at(0), "END");
  EXPECT_EQ(request.variables, R"({"enable_thinking":false})");
}

TEST(MessagesRequestTest, AdaptersAreListed) {
  const auto settings = [](const std::string& more) {
    return ParseMessagesRequest(
               R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}])" + more + "}",
               false)
        .settings;
  };
  EXPECT_FALSE(settings("").adapters.has_value());
  const auto adapters = settings(R"(, "lora": [{"id": 3, "scale": 0.5}])").adapters;
  ASSERT_TRUE(adapters && adapters->size() == 1);
  EXPECT_EQ((*adapters)[0].id, 3);
  EXPECT_EQ((*adapters)[0].scale, 0.5f);
  EXPECT_THROW(settings(R"(, "lora": 3)"), RequestError);
}

TEST(MessagesRequestTest, ErrorsNameTheFormatThatIsGiven) {
  const auto name = [](const std::string& more) {
    const std::string body =
        R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}])" + more + "}";
    return ParseMessagesRequest(body, false).settings.names.json_schema;
  };
  const std::string format = R"({"type": "json_schema", "schema": {}})";
  EXPECT_EQ(name(R"(, "output_format": )" + format), "output_format");
  EXPECT_EQ(name(R"(, "output_config": {"format": )" + format + "}"), "output_config.format");
  try {
    ParseMessagesRequest(R"({"max_tokens": 9, "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]})",
                         false);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_STREQ(error.what(),
                 "messages: expected the tool_use_id of a result to be the id of a call before it, "
                 "found 't'");
  }
}

TEST(MessagesRequestTest, WhatIsNotThereIsRefusedByName) {
  const auto refused = [](const std::string& more, const std::string& field) {
    const std::string body =
        R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}])" + more + "}";
    try {
      ParseMessagesRequest(body, false);
      ADD_FAILURE() << body;
    } catch (const RequestError& error) {
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  refused(R"(, "temperature": 1.5)", "temperature");
  refused(R"(, "nonsense": 1)", "nonsense");
  refused(R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])", "tools[0].type");
  refused(R"(, "tool_choice": {"type": "tool", "name": "g"})", "tool_choice");
  refused(R"(, "mcp_servers": [{"url": "x"}])", "mcp_servers");
  EXPECT_THROW(ParseMessagesRequest(R"({"messages": [{"role": "user", "content": "Hi"}]})", false),
               RequestError);
  EXPECT_EQ(ParseMessagesRequest(R"({"messages": [{"role": "user", "content": "Hi"}]})", true)
                .messages.size(),
            1u);
}

}  // namespace
}  // namespace hearth::serve
