// The model of this repository: that it is what its card says (models/README.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/session/session.h"
#include "measure/evaluate.h"
#include "text/chat/chat_template.h"
#include "text/grammar/json_schema_grammar.h"

namespace hearth {
namespace {

constexpr uint64_t kMaxFileBytes = 12'000'000;

std::string ModelPath() { return SourcePath("models/hearth-stories-5m.gguf"); }

// What an independent forward pass over the exported file measured (tools/train/evaluate.py).
nlohmann::json Reference() {
  return nlohmann::json::parse(ReadWholeFile(SourcePath("models/hearth-stories.json")));
}

TEST(EmbeddedModelTest, IsSmallSparseByNatureAndMadeForChat) {
  EXPECT_LE(std::filesystem::file_size(ModelPath()), kMaxFileBytes);
  const auto engine = Engine::Load(ModelPath(), {});
  const ModelSpec& spec = engine->model().spec();
  const FfnSpec& ffn = MainFfn(spec);
  EXPECT_EQ(ffn.activation, FfnActivation::kDRelu);
  EXPECT_GE(ffn.intermediate_size, 4 * spec.hidden_size);
  EXPECT_EQ(spec.hidden_size % 32, 0);
  const std::string* chat = engine->model().metadata().FindString("tokenizer.chat_template");
  ASSERT_NE(chat, nullptr);
  EXPECT_EQ(DetectChatFormat(*chat), ChatFormat::kChatMl);
  EXPECT_THAT(*engine->model().metadata().FindString("general.license"),
              ::testing::StrCaseEq("apache-2.0"));
}

TEST(EmbeddedModelTest, PerplexityAndSparsityAreTheCards) {
  EngineOptions options;
  options.kv_codec = KvCodec::kF32;
  const auto engine = Engine::Load(ModelPath(), options);
  const std::string text = ReadWholeFile(SourcePath("models/hearth-stories.txt"));
  const EvalResult result = EvaluateText(*engine, engine->model().tokenizer().Encode(text));
  const nlohmann::json expected = Reference()["reference"]["stories_windows"];
  EXPECT_EQ(result.tokens, expected["tokens"].get<int64_t>());
  EXPECT_NEAR(result.nll_per_token, expected["nll_per_token"].get<double>(), 0.0005);
  ASSERT_TRUE(result.quality.active.has_value());
  EXPECT_LE(*result.quality.active, 0.20) << "at least 80% of the neurons must be inactive";
}

TEST(EmbeddedModelTest, GreedyTextIsTheReferences) {
  EngineOptions options;
  options.kv_codec = KvCodec::kF32;
  const auto engine = Engine::Load(ModelPath(), options);
  const nlohmann::json expected = Reference()["reference"]["greedy_from_bos"];
  const auto ids = expected["token_ids"].get<std::vector<TokenId>>();
  GenerateOptions generate;
  generate.max_tokens = static_cast<int64_t>(ids.size());
  generate.sampling.temperature = 0;
  const TokenId bos = engine->model().tokenizer().special().bos;
  const GenerateResult result = Session(*engine).Generate({&bos, 1}, generate);
  // A generation ends before the end token that the reference's list may hold.
  EXPECT_LE(result.token_ids.size(), ids.size());
  EXPECT_GE(result.token_ids.size() + 1, std::min<size_t>(ids.size(), 2));
  EXPECT_TRUE(std::equal(result.token_ids.begin(), result.token_ids.end(), ids.begin()));
}

TEST(EmbeddedModelTest, TellsAStoryThatEnds) {
  const auto engine = Engine::Load(ModelPath(), {});
  const Tokenizer& tokenizer = engine->model().tokenizer();
  const std::vector<ChatMessage> messages = {{"user", "Tell me a story about a fox."}};
  const auto chat = ChatTemplate::FromModel(engine->model().metadata(), tokenizer);
  ASSERT_TRUE(chat.has_value());
  const auto prompt = EncodeChat(tokenizer, chat->Render(messages, true));
  EXPECT_EQ(prompt, EncodeChat(tokenizer, RenderChat(ChatFormat::kChatMl, messages, true)));
  GenerateOptions options;
  options.max_tokens = 450;
  options.sampling.temperature = 0;
  const GenerateResult result = Session(*engine).Generate(prompt, options);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_GT(result.text.size(), 200u);
}

TEST(EmbeddedModelTest, WritesJsonOfASchemaUnderAGrammar) {
  const auto engine = Engine::Load(ModelPath(), {});
  const auto grammar = JsonSchemaGrammar(R"({"type": "object", "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 12},
      "age": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["name", "age"]})");
  const auto vocabulary = std::make_shared<const SortedVocabulary>(engine->model().tokenizer());
  const TokenId bos = engine->model().tokenizer().special().bos;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto matcher = std::make_shared<GrammarMatcher>(grammar, vocabulary);
    GenerateOptions options;
    options.max_tokens = 200;
    options.sampling.seed = seed;
    options.grammar = matcher;
    const GenerateResult result = Session(*engine).Generate({&bos, 1}, options);
    EXPECT_EQ(result.finish_reason, FinishReason::kStop) << result.text;
    const nlohmann::json json = nlohmann::json::parse(result.text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << result.text;
    EXPECT_TRUE(json["name"].is_string());
    EXPECT_GE(json["age"].get<int>(), 1);
    EXPECT_LE(json["age"].get<int>(), 99);
  }
}

}  // namespace
}  // namespace hearth
