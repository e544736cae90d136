#include "text/chat/harmony.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

using Rules = HarmonyReader::Rules;

TEST(Harmony, AnAnswerIsMessagesOfChannels) {
  const auto messages = ParseHarmony(
      "<|channel|>analysis<|message|>Tea or coffee?<|end|><|start|>assistant<|channel|>commentary"
      "<|message|>One moment.<|end|><|start|>assistant to=functions.brew<|channel|>commentary "
      "<|constrain|>json<|message|>{\"what\": \"tea\"}<|call|>",
      "assistant", Rules::kStrict);
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(
      messages[0],
      (HarmonyMessage{.role = "assistant", .channel = "analysis", .content = "Tea or coffee?"}));
  EXPECT_EQ(messages[1].channel, "commentary");
  EXPECT_EQ(messages[1].recipient, "");
  EXPECT_EQ(messages[2], (HarmonyMessage{.role = "assistant",
                                         .channel = "commentary",
                                         .recipient = "functions.brew",
                                         .content_type = "<|constrain|>json",
                                         .content = "{\"what\": \"tea\"}"}));
}

TEST(Harmony, HeadersHaveSeveralForms) {
  const struct {
    const char* header;
    HarmonyMessage expected;
  } cases[] = {
      {"assistant<|channel|>commentary to=functions.f<|constrain|>json",
       {.role = "assistant",
        .channel = "commentary",
        .recipient = "functions.f",
        .content_type = "<|constrain|>json"}},
      {"assistant to=functions.f<|channel|>commentary json",
       {.role = "assistant",
        .channel = "commentary",
        .recipient = "functions.f",
        .content_type = "json"}},
      {"functions.f to=assistant<|channel|>commentary",
       {.role = "tool", .name = "functions.f", .channel = "commentary", .recipient = "assistant"}},
      {"user", {.role = "user"}},
      {"developer", {.role = "developer"}},
  };
  for (const auto& c : cases) {
    HarmonyMessage expected = c.expected;
    expected.content = "x";
    const auto messages = ParseHarmony("<|start|>" + std::string(c.header) + "<|message|>x<|end|>",
                                       "", Rules::kStrict);
    EXPECT_EQ(messages, std::vector<HarmonyMessage>{expected}) << c.header;
  }
}

TEST(Harmony, WhatIsNoMessageIsRefusedOrSaid) {
  const struct {
    const char* text;
    std::vector<std::string> lenient;  // contents
  } cases[] = {
      {"Hello.", {"Hello."}},
      {"Hello.<|return|>", {"Hello."}},
      {"<|channel|>final<|message|>a<|end|>b", {"a", "b"}},
      {"<|channel|>final<|message|>a<|end|><|channel|>final<|message|>b<|return|>", {"a", "b"}},
      {"<|start|>assistant<|message|>a", {"a"}},
  };
  for (const auto& c : cases) {
    EXPECT_THROW(ParseHarmony(c.text, "assistant", Rules::kStrict), Error) << c.text;
    std::vector<std::string> contents;
    for (const HarmonyMessage& message : ParseHarmony(c.text, "assistant", Rules::kLenient)) {
      contents.push_back(message.content);
    }
    EXPECT_EQ(contents, c.lenient) << c.text;
  }
  const std::string words(1000, 'w');
  EXPECT_EQ(ParseHarmony(words, "assistant", Rules::kLenient).at(0).content, words);
}

TEST(Harmony, WhatLooksLikeAMarkerIsText) {
  const std::string said = "a < b <| c <|end <|channel|> d";
  for (const char* end : {"<|return|>", "<|end|>", ""}) {
    const std::string text = "<|channel|>final<|message|>" + said + end;
    EXPECT_EQ(ParseHarmony(text, "assistant", Rules::kStrict).at(0).content, said);
  }
}

TEST(Harmony, PiecesChangeNothing) {
  const std::string text =
      "<|channel|>analysis<|message|>a <|b|> \xC3\xA9<|end|><|start|>assistant<|channel|>final"
      "<|message|>c<|";
  const auto whole = ParseHarmony(text, "assistant", Rules::kLenient);
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[1].content, "c<|") << "the text ended there";
  for (const size_t piece : {1, 2, 3, 7}) {
    HarmonyMessages messages;
    HarmonyReader reader("assistant", Rules::kLenient, messages);
    for (size_t at = 0; at < text.size(); at += piece) reader.Push(text.substr(at, piece));
    reader.Finish();
    EXPECT_EQ(messages.all(), whole) << "in pieces of " << piece;
  }
}

}  // namespace
}  // namespace hearth
