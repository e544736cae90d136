#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "text/test_vocabularies.h"

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
