#include "measure/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/session/prompt.h"
#include "engine/session/token_scores.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr uint64_t kAll = 1000;

TEST(ReadTaskTest, KnowsThreeKinds) {
  const auto choices = ReadTask(
      "{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n\n"
      "{\"prompt\": \"d\", \"choices\": [\"e\", \"f\", \"g\"], \"answer\": 0}\n",
      "t.jsonl", kAll);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].pairs[1].first + "|" + choices[0].pairs[1].second, "a|c");
  EXPECT_EQ(choices[0].answer, 1);
  EXPECT_EQ(choices[1].pairs.size(), 3u);
  const auto prompts =
      ReadTask("{\"prompts\": [\"a\", \"b\"], \"ending\": \"c\", \"answer\": 0}", "t", kAll);
  EXPECT_EQ(prompts[0].kind, TaskKind::kPrompts);
  EXPECT_EQ(prompts[0].pairs[1].first + "|" + prompts[0].pairs[1].second, "b|c");
  const auto words = ReadTask("{\"prompt\": \"a b\", \"answer\": \"c\"}", "t", kAll);
  EXPECT_EQ(words[0].kind, TaskKind::kLastWord);
  const std::string three =
      "{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"c\", \"answer\": \"d\"}\n{";
  EXPECT_EQ(ReadTask(three, "t", 2).size(), 2u);
}

TEST(ReadTaskTest, NamesTheLineOfWhatItRefuses) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      ReadTask(text, "t.jsonl", kAll);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string good = "{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}\n";
  EXPECT_THAT(refusal(""), HasSubstr("no questions"));
  EXPECT_THAT(refusal(good + "{"), HasSubstr("t.jsonl:2"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("t.jsonl:1"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}"),
              HasSubstr("answer"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"choices\": [\"b\"], \"answer\": 0}"),
              HasSubstr("choices"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"choices\": [\"b\", 7], \"answer\": 0}"),
              HasSubstr("choices"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}"),
              HasSubstr("not empty"));
  EXPECT_THAT(refusal("{\"answer\": \"b\"}"), HasSubstr("prompt"));
  EXPECT_THAT(refusal(good + "{\"prompt\": \"a\", \"answer\": \"b\"}"),
              HasSubstr("kind of question"));
}

class AnswerTaskTest : public testing::Test {
 protected:
  // The sum of ln p of the tokens of `second` after `first`, and whether each is the likeliest.
  std::pair<double, bool> Foreseen(const std::string& first, const std::string& second) {
    const std::vector<TokenId> tokens =
        EncodePrompt(engine_->model(), first + " " + second, engine_->context());
    const size_t from = EncodePrompt(engine_->model(), first, engine_->context()).size();
    double sum = 0;
    bool is_greedy = true;
    ForAllLogits(engine_->pass(), engine_->kv_pool(), tokens, engine_->selector(), nullptr,
                 [&](size_t position, std::span<const float> logits) {
                   if (position + 1 < from || position + 1 == tokens.size()) return;
                   sum -= NegativeLogLikelihood(logits, tokens[position + 1]);
                   is_greedy = is_greedy && LikeliestToken(logits) == tokens[position + 1];
                 });
    return {sum, is_greedy};
  }

  std::unique_ptr<Engine> engine_ =
      Engine::Load(SourcePath("models/hearth-stories-5m.gguf"), {.threads = 2, .context = 128});
};

const std::vector<std::string> kEndings = {"day, a girl named Lily went to the park.",
                                           "stone the of a under", "time there was a little dog."};

// Each question's tokens are run apart from the other's: nothing is shared.
TEST_F(AnswerTaskTest, TheLikeliestPairIsTheAnswer) {
  for (const bool has_prompts : {false, true}) {
    TaskQuestion question;
    question.kind = has_prompts ? TaskKind::kPrompts : TaskKind::kChoices;
    for (const std::string& text : kEndings) {
      question.pairs.push_back(has_prompts ? TaskPair{"Once upon a " + text, "She was happy."}
                                           : TaskPair{"Once upon a", text});
    }
    std::vector<double> sums, normalized;
    for (const TaskPair& pair : question.pairs) {
      sums.push_back(Foreseen(pair.first, pair.second).first);
      normalized.push_back(sums.back() / static_cast<double>(pair.second.size()));
    }
    const auto best = [](const std::vector<double>& of) {
      return std::max_element(of.begin(), of.end()) - of.begin();
    };
    for (int64_t answer = 0; answer < 3; ++answer) {
      question.answer = answer;
      uint64_t told = 0;
      const TaskResult result =
          AnswerTask(*engine_, {question}, [&](uint64_t done, uint64_t) { told = done; });
      EXPECT_EQ(result.right, best(sums) == answer ? 1u : 0u) << has_prompts << answer;
      EXPECT_EQ(result.normalized_accuracy.share, best(normalized) == answer ? 1 : 0);
      EXPECT_EQ(told, 1u);
    }
  }
}

TEST_F(AnswerTaskTest, LastWordsHaveAPerplexity) {
  const std::vector<TaskPair> pairs = {{"Once upon a time, there was a little", "girl"},
                                       {"Lily and Tom went to the", "xylophone"},
                                       {"Once upon a", "time"}};
  std::vector<TaskQuestion> questions;
  double sum = 0;
  uint64_t greedy = 0;
  for (const TaskPair& pair : pairs) {
    questions.push_back({TaskKind::kLastWord, {pair}, 0});
    const auto [log_likelihood, is_greedy] = Foreseen(pair.first, pair.second);
    sum += log_likelihood;
    greedy += is_greedy ? 1 : 0;
  }
  const TaskResult result = AnswerTask(*engine_, questions);
  EXPECT_NEAR(result.perplexity, std::exp(-sum / 3), 1e-6 * result.perplexity);
  EXPECT_EQ(result.right, greedy);
  const double share = static_cast<double>(greedy) / 3;
  EXPECT_DOUBLE_EQ(result.accuracy.share, share);
  EXPECT_DOUBLE_EQ(result.accuracy.error, std::sqrt(share * (1 - share) / 3));
}

TEST_F(AnswerTaskTest, WhatPairsBeginWithIsRunOnce) {
  TaskQuestion question;
  for (const std::string& text : kEndings) {
    question.pairs.push_back({"Lily went to the park with her mom and her dog. Once upon a", text});
  }
  uint64_t alone = 0;
  for (const TaskPair& pair : question.pairs) {
    alone += EncodePrompt(engine_->model(), pair.first + " " + pair.second, 128).size();
  }
  const uint64_t prompt = EncodePrompt(engine_->model(), question.pairs[0].first, 128).size();
  EXPECT_EQ(AnswerTask(*engine_, {question}).tokens, alone - 2 * (prompt - 1));
}

TEST_F(AnswerTaskTest, AQuestionThatDoesNotFitIsRefused) {
  std::string text = "Once";
  for (int i = 0; i < 200; ++i) text += " upon";
  EXPECT_THROW(AnswerTask(*engine_, {{TaskKind::kLastWord, {{text, "a"}}, 0}}), Error);
}

}  // namespace
}  // namespace hearth
