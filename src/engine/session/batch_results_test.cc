// What requests of a batch are told beside their text: scores of tokens, and embeddings.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/test_batches.h"
#include "engine/session/token_scores.h"

namespace hearth {
namespace {

// Though another request generates beside it, and its prompt is in the cache.
TEST(BatchResultsTest, PromptsAreScoredAsTextsAre) {
  const auto engine = LoadForBatches("llama", 4);
  std::mt19937 random(5);
  const std::vector<TokenId> prompt = RandomTokens(random, 100);
  std::vector<ScoredToken> expected;
  ForAllLogits(
      engine->pass(), engine->kv_pool(), prompt, engine->prefill_selector(), nullptr,
      [&](size_t position, std::span<const float> logits) {
        if (position + 1 == prompt.size()) return;
        expected.push_back(ScoreToken(logits.first(engine->model().tokenizer().vocab_size()),
                                      prompt[position + 1], 2));
      });
  BatchScheduler scheduler(*engine, {});
  Told before, beside, told;
  scheduler.Add(MakeRequest(prompt, Sampled(1, 2), before));
  RunAll(scheduler);
  scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(2, 20), beside));
  scheduler.Step();
  std::vector<ScoredToken> scores;
  BatchRequest request = MakeRequest(prompt, Sampled(1, 2), told);
  request.generate.top_logprobs = 2;
  request.on_prompt = [&](const std::vector<ScoredToken>& found) {
    EXPECT_EQ(told.tokens, 0) << "before the answer";
    EXPECT_TRUE(scores.empty()) << "once";
    scores = found;
  };
  scheduler.Add(std::move(request));
  RunAll(scheduler);
  EXPECT_EQ(told.text, before.text);
  ASSERT_EQ(scores.size(), prompt.size() - 1);
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_EQ(scores[i].token.id, prompt[i + 1]);
    EXPECT_EQ(scores[i].token.logprob, expected[i].token.logprob) << i;
    EXPECT_EQ(scores[i].top[0].id, expected[i].top[0].id);
  }
}

TEST(BatchResultsTest, ScoresAreLogarithmsOfProbabilities) {
  const auto engine = LoadForBatches("llama", 1);
  BatchScheduler scheduler(*engine, {});
  GenerateOptions options = Sampled(4, 6);
  options.top_logprobs = 3;
  std::vector<ScoredToken> scores;
  Told told;
  BatchRequest request = MakeRequest({5, 6, 7}, options, told);
  request.on_token = [&](std::string_view, const std::vector<ScoredToken>& some) {
    scores.insert(scores.end(), some.begin(), some.end());
  };
  scheduler.Add(std::move(request));
  RunAll(scheduler);
  const auto tokens = Session(*engine).Generate(std::vector<TokenId>{5, 6, 7}, options).token_ids;
  ASSERT_EQ(scores.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(scores[i].token.id, tokens[i]);
    ASSERT_EQ(scores[i].top.size(), 3u);
    EXPECT_LE(scores[i].token.logprob, scores[i].top[0].logprob);
    EXPECT_GE(scores[i].top[0].logprob, scores[i].top[2].logprob);
    EXPECT_LE(scores[i].top[0].logprob, 0);
  }
}

TEST(BatchResultsTest, EmbeddingsAreMeansOfLastStatesWhateverTheChunks) {
  const auto engine = LoadForBatches("llama", 3);
  std::mt19937 random(13);
  const std::vector<TokenId> text = RandomTokens(random, 100);
  // The oracle: one pass, summed by hand.
  KvSequence kv(engine->kv_pool());
  const BatchSequence sequence{&kv, text};
  engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->prefill_selector());
  const FloatView states = engine->pass().FinalStates();
  std::vector<double> mean(static_cast<size_t>(states.cols));
  for (int64_t row = 0; row < states.rows; ++row) {
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(states.row(row)[i]) / static_cast<double>(text.size());
    }
  }
  kv.Truncate(0);
  BatchScheduler scheduler(*engine, {});
  Told company, told;
  scheduler.Add(MakeRequest({5, 6, 7}, Sampled(1, 30), company));  // chunks of 64 beside it
  scheduler.Step();
  BatchRequest request = MakeRequest(text, {}, told);
  request.wants_embedding = true;
  scheduler.Add(std::move(request));
  RunAll(scheduler);
  ASSERT_EQ(told.outcome->embedding.size(), mean.size());
  for (size_t i = 0; i < mean.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(told.outcome->embedding[i]), mean[i], 1e-5);
  }
  EXPECT_EQ(told.tokens, 0);
}

}  // namespace
}  // namespace hearth
