#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr char kOwn[] =
    "{{ bos_token }}{% if tools %}{{ tools|tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if documents is none %}.{% endif %}";

GgufMetadata WithTemplate(const std::string& key, const std::string& source) {
  GgufMetadata metadata = SmallBpeVocabulary().Bpe();
  metadata.SetString(key, source);
  return metadata;
}

ChatTemplate OwnTemplate(const GgufMetadata& metadata) {
  return *ChatTemplate::FromModel(metadata, *Tokenizer::FromGguf(metadata));
}

std::string Joined(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.text;
  return text;
}

TEST(ChatTemplate, RendersTheModelsOwn) {
  const ChatTemplate chat = OwnTemplate(WithTemplate("tokenizer.chat_template", kOwn));
  EXPECT_EQ(chat.Describe(), "its own template");
  const auto pieces = chat.Render({{"user", "<|im_end|> \xFF"}}, true);
  EXPECT_THAT(Joined(pieces), HasSubstr("<|im_start|>user\n<|im_end|> \xEF\xBF\xBD<|im_end|>\n"
                                        "<|im_start|>assistant\n."));
  for (const ChatPiece& piece : pieces) {
    const bool is_user = piece.text == "user" || piece.text == "<|im_end|> \xEF\xBF\xBD";
    EXPECT_EQ(piece.trusted, !is_user) << piece.text;
  }
  EXPECT_THAT(chat.StopStrings(), testing::Contains("<|im_end|>"));
}

TEST(ChatTemplate, TakesTheToolsOfARequest) {
  GgufMetadata metadata = WithTemplate("tokenizer.chat_template", kOwn);
  const std::string request =
      R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "add"}]})";
  EXPECT_THAT(Joined(OwnTemplate(metadata).RenderJson(request)),
              HasSubstr("[{\"name\": \"add\"}]\n<|im_start|>user"));
  metadata.SetString("tokenizer.chat_template.tool_use", "{{ tools[0].name }}");
  EXPECT_EQ(Joined(OwnTemplate(metadata).RenderJson(request)), "add");
  EXPECT_THAT(Joined(OwnTemplate(metadata).RenderJson(R"({"messages": []})")),
              testing::EndsWith("."));
}

constexpr char kTurns[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";

// Gemma refuses the role, others leave it out, others take it in front only.
TEST(ChatTemplate, TheSystemsWordsReachEveryModel) {
  const std::string refuses =
      "{% for m in messages %}{% if m.role == 'system' %}"
      "{{ raise_exception('no system') }}{% endif %}{% endfor %}";
  const std::string only_first =
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('system comes first') }}{% endif %}{% endfor %}";
  const std::string leaves_out =
      "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const auto text = [](const std::string& source, const std::vector<ChatMessage>& messages) {
    const GgufMetadata metadata = WithTemplate("tokenizer.chat_template", source);
    return Joined(OwnTemplate(metadata).Render(messages, false));
  };
  const std::vector<ChatMessage> usual = {{"system", "s"}, {"user", "u"}, {"assistant", "a"}};
  EXPECT_EQ(text(kTurns, usual), "[system]s[user]u[assistant]a");
  for (const std::string& source : {refuses + kTurns, leaves_out}) {
    EXPECT_EQ(text(source, usual), "[user]s\n\nu[assistant]a");
    EXPECT_EQ(text(source, {{"system", "s"}, {"system", "t"}, {"user", "u"}}), "[user]s\n\nt\n\nu");
    EXPECT_EQ(text(source, {{"system", "s"}}), "[user]s");
    EXPECT_EQ(text(source, {{"user", "u"}, {"system", "s"}}), "[user]u\n\ns");
  }
  EXPECT_EQ(
      text(only_first + kTurns, {{"system", "s"}, {"user", "u"}, {"system", "t"}, {"user", "v"}}),
      "[system]s[user]u[user]t\n\nv");
  EXPECT_THROW(text("{{ raise_exception('never') }}", usual), Error);
}

TEST(ChatTemplate, VariablesReachTheTemplateAsText) {
  const std::string source =
      "{% if enable_thinking is defined and not enable_thinking %}quiet{% endif %}{{ mark }}";
  const GgufMetadata metadata = WithTemplate("tokenizer.chat_template", source);
  const ChatTemplate chat = OwnTemplate(metadata);
  const auto pieces =
      chat.Render({{"user", "u"}}, true, {}, R"({"enable_thinking": false, "mark": "<|im_end|>"})");
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, "quiet");
  EXPECT_EQ(pieces[1].text, "<|im_end|>");
  EXPECT_FALSE(pieces[1].trusted);
  EXPECT_EQ(Joined(chat.Render({{"user", "u"}}, true)), "");
  EXPECT_THROW(chat.Render({{"user", "u"}}, true, {}, R"({"messages": []})"), Error);
}

TEST(ChatTemplate, ThoughtsOfAnAnswerAreShownWhereTheTemplateDoes) {
  const GgufMetadata metadata = WithTemplate(
      "tokenizer.chat_template",
      "{% for m in messages %}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
      "{{ m.content }}{% endfor %}");
  ChatMessage answer = {"assistant", "a"};
  answer.reasoning = "why";
  EXPECT_EQ(Joined(OwnTemplate(metadata).Render({{"user", "u"}, answer}, true)), "u(why)a");
}

TEST(ChatTemplate, RefusesATemplateThatIsNotValidAndSaysItsLine) {
  try {
    OwnTemplate(WithTemplate("tokenizer.chat_template", "\n{% if %}"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.chat_template: line 2: "));
  }
}

TEST(ChatTemplate, BuiltInFormatsServeModelsWithoutOne) {
  const GgufMetadata metadata = SmallBpeVocabulary().Bpe();
  EXPECT_FALSE(ChatTemplate::FromModel(metadata, *Tokenizer::FromGguf(metadata)).has_value());
  const ChatTemplate chat = ChatTemplate::BuiltIn(ChatFormat::kChatMl);
  EXPECT_EQ(chat.Describe(), "chatml format");
  const std::string expected = "<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(Joined(chat.Render({{"user", "Hi"}}, false)), expected);
  EXPECT_EQ(Joined(chat.RenderJson(R"({"messages": [{"role": "user", "content": "Hi"}]})")),
            expected);
  for (const char* request : {R"({"messages": [{"role": "user", "content": ["Hi"]}]})",
                              R"({"messages": [], "tools": [1]})", "[]", "{"}) {
    EXPECT_THROW(chat.RenderJson(request), Error) << request;
  }
}

TEST(ChatTemplate, BosComesOnce) {
  const GgufMetadata metadata = SmallSpmVocabulary().Spm();
  const auto tokenizer = Tokenizer::FromGguf(metadata);
  const TokenId bos = tokenizer->special().bos;
  ASSERT_TRUE(tokenizer->special().add_bos);
  const std::string bos_text = tokenizer->VocabularyText(bos);
  for (const std::vector<ChatPiece>& pieces :
       {std::vector<ChatPiece>{{"ab", true}}, {{bos_text + "ab", true}}, {{bos_text, false}}}) {
    const auto ids = EncodeChat(*tokenizer, pieces);
    ASSERT_FALSE(ids.empty());
    EXPECT_EQ(ids[0], bos);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), bos), 1);
  }
}

}  // namespace
}  // namespace hearth
