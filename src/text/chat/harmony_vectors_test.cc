// Conversations and answers in Harmony, as its publisher's library writes and reads them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "format/gguf.h"
#include "text/chat/harmony.h"
#include "text/chat/harmony_prompt.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

std::string MemberOr(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<ToolNamespace> NamespacesOf(const Json& content) {
  std::vector<ToolNamespace> spaces;
  if (!content.contains("tools")) return spaces;
  for (const auto& [name, described] : content["tools"].items()) {
    ToolNamespace& space =
        spaces.emplace_back(ToolNamespace{name, MemberOr(described, "description"), {}});
    for (const Json& tool : described["tools"]) {
      ToolFunction& function = space.functions.emplace_back();
      function.name = tool["name"];
      function.description = MemberOr(tool, "description");
      if (tool.contains("parameters")) function.parameters = tool["parameters"].dump();
    }
  }
  return spaces;
}

bool HasFunctions(const Json& messages) {
  for (const Json& message : messages) {
    const Json& content = message["content"][0];
    if (content["type"] == "developer_content" && content.contains("tools")) return true;
  }
  return false;
}

std::string ContentOf(const Json& content, bool has_functions) {
  if (content["type"] == "system_content") {
    return HarmonySystemText({.identity = content["model_identity"],
                              .knowledge_cutoff = MemberOr(content, "knowledge_cutoff"),
                              .date = MemberOr(content, "conversation_start_date"),
                              .reasoning_effort = content["reasoning_effort"],
                              .tools = NamespacesOf(content),
                              .has_functions = has_functions});
  }
  if (content["type"] == "developer_content") {
    return HarmonyDeveloperText(MemberOr(content, "instructions"), NamespacesOf(content));
  }
  return content["text"];
}

std::vector<HarmonyMessage> MessagesOf(const Json& list) {
  std::vector<HarmonyMessage> messages;
  const bool has_functions = HasFunctions(list);
  for (const Json& message : list) {
    EXPECT_EQ(message["content"].size(), 1u);
    messages.push_back({.role = message["role"],
                        .name = MemberOr(message, "name"),
                        .channel = MemberOr(message, "channel"),
                        .recipient = MemberOr(message, "recipient"),
                        .content_type = MemberOr(message, "content_type"),
                        .content = ContentOf(message["content"][0], has_functions)});
  }
  return messages;
}

HarmonyEnding EndingOf(const std::string& function) {
  if (function == "render_conversation_for_completion") return HarmonyEnding::kCompletion;
  if (function == "render_conversation_for_training") return HarmonyEnding::kTraining;
  EXPECT_EQ(function, "render_conversation");
  return HarmonyEnding::kConversation;
}

void CheckRendering(const Json& c, const Tokenizer& tokenizer) {
  std::string text;
  const auto messages = MessagesOf(c["conversation"]["messages"]);
  const auto pieces = RenderHarmony(messages, EndingOf(c["function"]));
  for (const ChatPiece& piece : pieces) text += piece.text;
  EXPECT_EQ(text, c["text"]);
  EXPECT_EQ(EncodeChat(tokenizer, pieces), c["ids"].get<std::vector<TokenId>>());
}

// What an engine shows of an answer, its last token included.
std::string ShownText(const std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
  std::string text;
  StreamDecoder decoder(tokenizer);
  for (const TokenId id : ids) {
    const bool is_marker = tokenizer.type(id) == TokenType::kControl;
    text += is_marker ? decoder.Finish() + tokenizer.VocabularyText(id) : decoder.Push(id);
  }
  return text + decoder.Finish();
}

void CheckParsing(const Json& c, const Tokenizer& tokenizer) {
  const std::string text = ShownText(c["ids"], tokenizer);
  EXPECT_EQ(text, c["text"]);
  const std::string role = MemberOr(c, "role");
  const auto rules =
      c["strict"].get<bool>() ? HarmonyReader::Rules::kStrict : HarmonyReader::Rules::kLenient;
  if (c.contains("error")) {
    EXPECT_THROW(ParseHarmony(text, role, rules), Error);
    return;
  }
  for (const size_t piece : {size_t{1}, size_t{5}, text.size()}) {
    HarmonyMessages messages;
    HarmonyReader reader(role, rules, messages);
    for (size_t at = 0; at < text.size(); at += piece) reader.Push(text.substr(at, piece));
    if (c.contains("unfinished")) {
      EXPECT_TRUE(messages.is_open());
      EXPECT_EQ(messages.all().back().content, c["unfinished"]);
      EXPECT_EQ(messages.all().size(), c["messages"].size() + 1);
      continue;
    }
    reader.Finish();
    EXPECT_FALSE(messages.is_open());
    EXPECT_EQ(messages.all(), MessagesOf(c["messages"])) << "in pieces of " << piece;
  }
}

TEST(HarmonyVectorsShared, RendersAndReads) {
  HEARTH_NEED_SHARED("data/templates/harmony.json");
  const Json cases = Json::parse(ReadWholeFile(SharedPath("data/templates/harmony.json")));
  ASSERT_GE(cases.size(), 32u);
  const GgufFile vocabulary = GgufFile::Open(SharedPath("data/vocab/2026/ggml-vocab-gpt-oss.gguf"));
  const auto tokenizer = Tokenizer::FromGguf(vocabulary.metadata());
  for (const Json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    if (c["does"] == "render") {
      CheckRendering(c, *tokenizer);
    } else {
      ASSERT_EQ(c["does"], "parse");
      CheckParsing(c, *tokenizer);
    }
  }
}

}  // namespace
}  // namespace hearth
