#include "text/chat/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/chat/harmony.h"
#include "text/tokenizer/test_vocabularies.h"
#include "text/tools/test_tool_calls.h"

namespace hearth {
namespace {

struct Found {
  std::string thoughts, text;
  std::vector<FoundCall> calls;
  bool ends_in_calls = false;
  bool operator==(const Found&) const = default;
};
void PrintTo(const Found& found, std::ostream* out) {
  *out << "thoughts '" << found.thoughts << "' text '" << found.text << "'";
  for (const FoundCall& call : found.calls) *out << " " << call.name << call.arguments;
  *out << (found.ends_in_calls ? " ends in calls" : "");
}

Found Read(const AnswerForm& form, const std::string& answer, size_t piece) {
  AnswerReader reader(form);
  FoundInAnswer rest;
  Found found;
  const auto add = [&](std::vector<AnswerPart> parts) {
    for (const AnswerPart& part : parts) {
      if (part.is_thought) found.thoughts += part.text;
    }
    std::erase_if(parts, [](const AnswerPart& part) { return part.is_thought; });
    rest.Add(parts);
  };
  for (size_t at = 0; at < answer.size(); at += piece) add(reader.Push(answer.substr(at, piece)));
  add(reader.Finish());
  found.text = rest.text;
  found.calls = rest.calls;
  found.ends_in_calls = reader.ends_in_calls();
  return found;
}

AnswerForm Harmony() {
  const ToolSyntax& syntax = HarmonyToolSyntax();
  return {.thinking = HarmonyChannels(),
          .syntax = &syntax,
          .functions = Callable({"brew", "pour"}, syntax)};
}

TEST(AnswerReader, TellsHarmonysChannelsApart) {
  const std::string thinks = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const struct {
    std::string answer;
    Found expected;
  } cases[] = {
      {thinks + "<|channel|>final<|message|>Yes.\n\nOr no.", {"Hm.", "Yes.\n\nOr no.", {}}},
      {thinks + thinks + "<|channel|>final<|message|>Yes.", {"Hm.\n\nHm.", "Yes.", {}}},
      // The model's call ends the answer by a token that has no text.
      {thinks + "<|channel|>commentary to=functions.brew <|constrain|>json<|message|>{\"a\": [1]}",
       {"Hm.", "", {{"brew", "{\"a\": [1]}"}}, true}},
      {" to=functions.pour<|channel|>commentary json<|message|> {\"b\": 2}\n<|call|>",
       {"", "", {{"pour", "{\"b\": 2}"}}, true}},
      {thinks + "<|channel|>commentary<|message|>I brew.<|end|><|start|>assistant<|channel|>"
                "commentary to=functions.brew<|message|>{}",
       {"Hm.", "I brew.", {{"brew", "{}"}}, true}},
      {"<|channel|>commentary to=functions.brew<|message|><|call|>",
       {"", "", {{"brew", "{}"}}, true}},
      // Cut off.
      {"<|channel|>analysis<|message|>Hm", {"Hm", "", {}}},
      {"<|channel|>fin", {"", "", {}}},
      {"<|channel|>commentary to=functions.brew<|message|>{\"a\": ",
       {"", "", {{"brew", "{\"a\": "}}, false}},
      // Nobody's function is text, as what is written without a header.
      {"<|channel|>commentary to=functions.fly<|message|>{}", {"", "{}", {}}},
      {"Yes.", {"", "Yes.", {}}},
      {"", {"", "", {}}},
  };
  for (const auto& c : cases) {
    for (const size_t piece : {1, 4, 1000}) {
      EXPECT_EQ(Read(Harmony(), c.answer, piece), c.expected) << c.answer << " by " << piece;
    }
  }
  const AnswerForm no_tools = {.thinking = HarmonyChannels()};
  EXPECT_EQ(Read(no_tools, cases[0].answer, 3), cases[0].expected);
  EXPECT_EQ(Read(no_tools, "<|channel|>commentary to=functions.brew<|message|>{}", 3),
            (Found{"", "{}", {}, false}));
}

TEST(AnswerReader, ReadsMarksAndCallsOfOthers) {
  const ToolSyntax& syntax = GenericToolSyntax();
  const AnswerForm form = {.thinking = Thinking{"<think>", "</think>", true},
                           .syntax = &syntax,
                           .functions = Callable({"brew"}, syntax)};
  const std::string answer =
      "Hm.\n</think>\nI brew.\n<tool_call>\n{\"name\": \"brew\", \"arguments\": {}}\n</tool_call>";
  for (const size_t piece : {1, 4, 1000}) {
    EXPECT_EQ(Read(form, answer, piece), (Found{"Hm.", "I brew.", {{"brew", "{}"}}, true}));
    EXPECT_EQ(Read({}, answer, piece), (Found{"", answer, {}, false}));
  }
}

TEST(AnswerReader, MarksThatAreControlTokensAreShown) {
  VocabularyBuilder builder = SmallBpeVocabulary();
  for (const std::string_view marker : kHarmonyMarkers) {
    builder.Add(std::string(marker), TokenType::kControl);
  }
  const auto tokenizer = Tokenizer::FromGguf(builder.Bpe());
  std::vector<std::string> shown;
  for (const TokenId id : VisibleTokens(Harmony(), *tokenizer)) {
    shown.push_back(tokenizer->VocabularyText(id));
  }
  EXPECT_THAT(shown, testing::UnorderedElementsAre("<|start|>", "<|channel|>", "<|constrain|>",
                                                   "<|message|>", "<|end|>"))
      << "the others end the answer";
}

}  // namespace
}  // namespace hearth
