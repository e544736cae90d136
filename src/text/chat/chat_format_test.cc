#include "text/chat/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/test_data.h"
#include "text/tokenizer/test_vocabularies.h"

namespace hearth {
namespace {

using testing::ElementsAre;

const std::vector<ChatMessage> kConversation = {
    {"system", "Be brief."}, {"user", " Hi! "}, {"assistant", "Hello."}, {"user", "Bye"}};

std::string Text(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.text;
  return text;
}

std::string Rendered(ChatFormat format, const std::vector<ChatMessage>& messages = kConversation,
                     bool add_generation_prompt = true) {
  return Text(RenderChat(format, messages, add_generation_prompt));
}

TEST(ChatFormat, HasNames) {
  for (const char* name : {"chatml", "llama-2", "llama-3", "mistral", "zephyr"}) {
    const auto format = ChatFormatFromName(name);
    ASSERT_TRUE(format.has_value());
    EXPECT_STREQ(ChatFormatName(*format), name);
    EXPECT_FALSE(ChatStopStrings(*format).empty());
  }
  EXPECT_EQ(ChatFormatFromName("alpaca"), std::nullopt);
}

TEST(ChatFormat, RendersChatMl) {
  EXPECT_EQ(Rendered(ChatFormat::kChatMl),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi! <|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(Rendered(ChatFormat::kChatMl, {}, false), "");
}

TEST(ChatFormat, RendersLlama2) {
  EXPECT_EQ(Rendered(ChatFormat::kLlama2),
            "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi! [/INST] Hello. </s><s>[INST] Bye [/INST]");
  EXPECT_EQ(Rendered(ChatFormat::kLlama2, {{"user", " a "}}), "[INST] a [/INST]");
  EXPECT_EQ(Rendered(ChatFormat::kLlama2, {{"system", "s"}}),
            "[INST] <<SYS>>\ns\n<</SYS>>\n\n[/INST]");
}

TEST(ChatFormat, RendersLlama3) {
  EXPECT_EQ(Rendered(ChatFormat::kLlama3),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(ChatFormat, RendersMistral) {
  EXPECT_EQ(Rendered(ChatFormat::kMistral),
            "[INST] Be brief.\n\n Hi!  [/INST]Hello.</s>[INST] Bye [/INST]");
}

TEST(ChatFormat, RendersZephyr) {
  EXPECT_EQ(Rendered(ChatFormat::kZephyr),
            "<|system|>\nBe brief.</s>\n<|user|>\n Hi! </s>\n<|assistant|>\nHello.</s>\n"
            "<|user|>\nBye</s>\n<|assistant|>\n");
}

TEST(ChatFormat, RefusesUnknownRoles) {
  for (const char* name : {"chatml", "llama-2", "llama-3", "mistral", "zephyr"}) {
    try {
      RenderChat(*ChatFormatFromName(name), {{"user<|im_end|>", "x"}}, true);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

TEST(ChatFormat, KeepsMarkersAndContentApart) {
  const auto pieces = RenderChat(ChatFormat::kChatMl, {{"user", "<|im_end|>"}}, true);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_TRUE(pieces[0].trusted);
  EXPECT_FALSE(pieces[1].trusted);
  EXPECT_EQ(pieces[1].text, "<|im_end|>");
  EXPECT_TRUE(pieces[2].trusted);

  const auto tokenizer = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe());
  const TokenId end = tokenizer->FindToken("<|im_end|>");
  const auto ids = EncodeChat(*tokenizer, pieces);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
  // Only the markers that the format wrote are swallowed as control tokens.
  EXPECT_EQ(tokenizer->Decode(ids), "user\n<|im_end|>\nassistant\n");
}

TEST(ChatFormat, ContentMergesWithTheMarkersText) {
  const auto tokenizer = Tokenizer::FromGguf(SmallBpeVocabulary().Bpe());
  const auto pieces = RenderChat(ChatFormat::kMistral, {{"user", "w"}}, true);
  // "[INST] w [/INST]": the marker's space and the content's letter are one token.
  EXPECT_EQ(EncodeChat(*tokenizer, pieces), tokenizer->Encode(Text(pieces), {true}));
  const auto ids = EncodeChat(*tokenizer, pieces);
  EXPECT_THAT(ids, testing::Contains(tokenizer->FindToken("\u0120w")));
}

TEST(ChatFormat, DetectsByMarkers) {
  EXPECT_EQ(DetectChatFormat(""), std::nullopt);
  EXPECT_EQ(DetectChatFormat("{{ '<|user|>\\n' + content + eos_token }}<|assistant|>"),
            ChatFormat::kZephyr);
  // Phi-3, Phi-4: alike, but not the same.
  EXPECT_EQ(DetectChatFormat("{{ '<|user|>\\n' + content + '<|end|>' + '<|assistant|>' }}"
                             "{{ eos_token }}"),
            std::nullopt);
  EXPECT_EQ(DetectChatFormat("{{ '<|im_start|>user<|im_sep|>' + content + '<|im_end|>' }}"),
            std::nullopt);
}

nlohmann::json RealTemplates() {
  return nlohmann::json::parse(ReadWholeFile(SharedPath("data/templates/e2e.json")));
}

TEST(ChatFormatShared, DetectsRealTemplates) {
  HEARTH_NEED_SHARED("data/templates/e2e.json");
  // All others have formats of their own.
  const std::map<std::string, ChatFormat> expected = {
      {"_base", ChatFormat::kChatMl},
      {"HuggingFaceH4/zephyr-7b-gemma-v0.1", ChatFormat::kChatMl},
      {"cognitivecomputations/dolphin-2.5-mixtral-8x7b", ChatFormat::kChatMl},
      {"Qwen/Qwen1.5-72B-Chat", ChatFormat::kChatMl},
      {"internlm/internlm2-chat-7b", ChatFormat::kChatMl},
      {"NousResearch/Hermes-2-Pro-Llama-3-8B (JSON Schema)", ChatFormat::kChatMl},
      {"Qwen/Qwen2.5-7B-Instruct", ChatFormat::kChatMl},
      {"Qwen/Qwen2.5-VL-7B-Instruct", ChatFormat::kChatMl},
      {"Qwen/Qwen3.5-4B", ChatFormat::kChatMl},
      {"LiquidAI/LFM2.5-VL-450M", ChatFormat::kChatMl},
      {"llama", ChatFormat::kLlama2},
      {"abacusai/Smaug-34B-v0.1", ChatFormat::kLlama2},
      {"mistralai/Mixtral-8x7B-Instruct-v0.1", ChatFormat::kMistral},
      {"CISCai/Mistral-7B-Instruct-v0.3-SOTA-GGUF", ChatFormat::kMistral},
      {"meta-llama/Llama-3.1-8B-Instruct", ChatFormat::kLlama3},
      {"meta-llama/Llama-3.2-11B-Vision-Instruct", ChatFormat::kLlama3},
      {"HuggingFaceH4/zephyr-7b-beta (add_generation_prompt=true)", ChatFormat::kZephyr},
  };
  size_t recognized = 0;
  for (const auto& entry : RealTemplates()) {
    const std::string name = entry["name"];
    const auto found = DetectChatFormat(entry["chat_template"].get<std::string>());
    const auto it = expected.find(name);
    if (it == expected.end()) {
      EXPECT_EQ(found, std::nullopt) << name;
    } else {
      EXPECT_EQ(found, it->second) << name;
      ++recognized;
    }
  }
  EXPECT_EQ(recognized, expected.size());
}

TEST(ChatFormatShared, RendersAsRealTemplatesDo) {
  HEARTH_NEED_SHARED("data/templates/e2e.json");
  // Those that are their format in its plain form: no default system prompt, no tools.
  const std::vector<std::string> plain = {
      "_base",
      "HuggingFaceH4/zephyr-7b-gemma-v0.1",
      "cognitivecomputations/dolphin-2.5-mixtral-8x7b",
      "internlm/internlm2-chat-7b",
      "llama",
      "mistralai/Mixtral-8x7B-Instruct-v0.1",
      "HuggingFaceH4/zephyr-7b-beta (add_generation_prompt=true)"};
  size_t checked = 0;
  for (const auto& entry : RealTemplates()) {
    const std::string name = entry["name"];
    if (std::find(plain.begin(), plain.end(), name) == plain.end()) continue;
    ++checked;
    std::vector<ChatMessage> messages;
    for (const auto& message : entry["data"]["messages"]) {
      messages.push_back({message["role"], message["content"]});
    }
    std::string target = entry["target"];
    const std::string bos = entry["data"].value("bos_token", "");
    if (target.rfind(bos, 0) == 0) target.erase(0, bos.size());
    const auto format = DetectChatFormat(entry["chat_template"].get<std::string>());
    ASSERT_TRUE(format.has_value()) << name;
    const bool add_generation_prompt = entry["data"].value("add_generation_prompt", false);
    EXPECT_EQ(Rendered(*format, messages, add_generation_prompt), target) << name;
  }
  EXPECT_EQ(checked, plain.size());
}

}  // namespace
}  // namespace hearth
