#include "engine/session/batch_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <new>
#include <random>
#include <stdexcept>

#include "base/error.h"
#include "engine/session/session.h"
#include "engine/session/test_batches.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;

TEST(BatchSchedulerTest, ARequestAloneIsASession) {
  const auto engine = LoadForBatches("llama", 8);
  std::mt19937 random(1);
  BatchScheduler scheduler(*engine, {});
  for (const int64_t length : {1, 7, 60, 90}) {
    const std::vector<TokenId> prompt = RandomTokens(random, length);
    const GenerateOptions options = Sampled(static_cast<uint64_t>(length), 20);
    Told told;
    scheduler.Add(MakeRequest(prompt, options, told));
    RunAll(scheduler);
    const GenerateResult expected = Session(*engine).Generate(prompt, options);
    EXPECT_EQ(told.text, expected.text) << length;
    EXPECT_EQ(told.outcome->generated, expected.token_ids);
    EXPECT_EQ(told.outcome->finish_reason, FinishReason::kLength);
  }
}

TEST(BatchSchedulerTest, ManyTogetherAreAsEachAlone) {
  for (const char* model : {"llama", "qwen3moe", "mixtral"}) {
    const auto engine = LoadForBatches(model, 6);
    std::mt19937 random(7);
    std::vector<std::vector<TokenId>> prompts;
    std::vector<GenerateOptions> options;
    std::vector<std::string> expected;
    for (uint64_t i = 0; i < 20; ++i) {
      prompts.push_back(RandomTokens(random, 1 + static_cast<int64_t>(random() % 80)));
      options.push_back(Sampled(i, 1 + static_cast<int64_t>(random() % 30)));
      expected.push_back(Session(*engine).Generate(prompts.back(), options.back()).text);
    }
    std::vector<Told> told(prompts.size());
    BatchScheduler scheduler(*engine, {.most_running = 5});
    for (size_t i = 0; i < prompts.size(); ++i) {
      scheduler.Add(MakeRequest(prompts[i], options[i], told[i]));
      for (size_t steps = random() % 4; steps > 0; --steps) scheduler.Step();
      EXPECT_LE(scheduler.num_running(), 5);
      EXPECT_LE(scheduler.prefixes().promised_pages(), engine->kv_pool().num_pages());
    }
    RunAll(scheduler);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_TRUE(told[i].outcome && !told[i].outcome->error) << i;
      EXPECT_EQ(told[i].text, expected[i]) << model << " " << i;
    }
    EXPECT_GT(scheduler.counts().decode_tokens, 2 * scheduler.counts().decode_passes)
        << "they were computed together";
  }
}

TEST(BatchSchedulerTest, WhoComesBackWhenAllHaveEndedSharesAPass) {
  const auto engine = LoadForBatches("llama", 6);
  BatchScheduler scheduler(*engine, {});
  std::mt19937 random(11);
  std::array<Told, 4> told;
  for (size_t i = 0; i < 2; ++i) {
    scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(i, 3), told[i]));
  }
  EXPECT_FALSE(scheduler.has_begun());
  scheduler.Step();  // the prompts, and a first token of each
  EXPECT_TRUE(scheduler.has_begun());
  scheduler.Step();
  scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(2, 3), told[2]));
  scheduler.Step();  // the last tokens
  EXPECT_TRUE(told[0].outcome && told[1].outcome);
  EXPECT_EQ(scheduler.counts().prefill_passes, 1) << "the third request waits for the fourth";
  EXPECT_FALSE(scheduler.has_begun());
  scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(3, 3), told[3]));
  scheduler.Step();
  EXPECT_EQ(scheduler.counts().prefill_passes, 2);
  EXPECT_EQ(told[2].tokens, 1);
  EXPECT_EQ(told[3].tokens, 1);
  RunAll(scheduler);
}

TEST(BatchSchedulerTest, APromptInCompanyDoesNotWait) {
  const auto engine = LoadForBatches("llama", 6);
  BatchScheduler scheduler(*engine, {});
  std::mt19937 random(12);
  std::array<Told, 3> told;
  scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(0, 2), told[0]));
  scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(1, 9), told[1]));
  scheduler.Step();
  scheduler.Add(MakeRequest(RandomTokens(random, 9), Sampled(2, 9), told[2]));
  scheduler.Step();  // ends the first; the second goes on
  EXPECT_TRUE(told[0].outcome.has_value());
  EXPECT_EQ(told[2].tokens, 1);
  RunAll(scheduler);
}

TEST(BatchSchedulerTest, AConversationThatContinuesFindsItsPast) {
  const auto engine = LoadForBatches("llama", 3);
  BatchScheduler scheduler(*engine, {});
  std::mt19937 random(3);
  std::vector<TokenId> conversation = RandomTokens(random, 40);
  Told first;
  scheduler.Add(MakeRequest(conversation, Sampled(1, 10), first));
  RunAll(scheduler);
  const GenerateResult answer = Session(*engine).Generate(conversation, Sampled(1, 10));
  conversation.insert(conversation.end(), answer.token_ids.begin(), answer.token_ids.end());
  const std::vector<TokenId> question = RandomTokens(random, 5);
  conversation.insert(conversation.end(), question.begin(), question.end());
  const GenerateResult expected = Session(*engine).Generate(conversation, Sampled(2, 10));
  Told second;
  scheduler.Add(MakeRequest(conversation, Sampled(2, 10), second));
  RunAll(scheduler);
  EXPECT_EQ(first.outcome->reused_tokens, 0);
  // All but the last token of the answer, which nobody needed the logits after.
  EXPECT_EQ(second.outcome->reused_tokens, 49);
  EXPECT_EQ(second.text, expected.text);
  // Another that begins alike takes only what it has in common.
  std::vector<TokenId> other(conversation.begin(), conversation.begin() + 20);
  other.push_back(conversation[20] == 9 ? 10 : 9);
  Told third;
  scheduler.Add(MakeRequest(other, Sampled(3, 5), third));
  RunAll(scheduler);
  EXPECT_EQ(third.outcome->reused_tokens, 20);
  EXPECT_EQ(third.text, Session(*engine).Generate(other, Sampled(3, 5)).text);
}

TEST(BatchSchedulerTest, RequestsThatComeTogetherShareTheirPrompt) {
  const auto engine = LoadForBatches("llama", 4);
  BatchScheduler scheduler(*engine, {});
  std::mt19937 random(5);
  const std::vector<TokenId> prompt = RandomTokens(random, 100);
  std::vector<Told> told(3);
  for (size_t i = 0; i < told.size(); ++i) {
    scheduler.Add(MakeRequest(prompt, Sampled(i, 8), told[i]));
  }
  RunAll(scheduler);
  EXPECT_EQ(scheduler.counts().prompt_tokens, 102) << "once, and the last token for each";
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].text, Session(*engine).Generate(prompt, Sampled(i, 8)).text);
  }
}

TEST(BatchSchedulerTest, StartsInOrderAndOnlyWhatCanFinish) {
  // Two pages of 64 tokens, in a context of two pages.
  const auto engine = LoadForBatches("llama", 1);
  ASSERT_EQ(engine->kv_pool().num_pages(), 2);
  BatchScheduler scheduler(*engine, {});
  std::vector<Told> told(3);
  scheduler.Add(MakeRequest({5, 6, 7}, Sampled(1, 40), told[0]));    // one page
  scheduler.Add(MakeRequest({8, 9, 10}, Sampled(2, 100), told[1]));  // both
  scheduler.Add(MakeRequest({11, 12}, Sampled(3, 5), told[2]));      // one
  scheduler.Step();
  EXPECT_EQ(scheduler.num_running(), 1) << "the third does not overtake the second";
  EXPECT_EQ(scheduler.num_waiting(), 2);
  RunAll(scheduler);
  for (const Told& each : told) {
    ASSERT_TRUE(each.outcome.has_value());
    EXPECT_FALSE(each.outcome->error.has_value());
    EXPECT_EQ(std::ssize(each.outcome->generated), each.tokens);
  }
  EXPECT_EQ(told[1].tokens, 100);
  EXPECT_LE(scheduler.prefixes().size(), 2);
}

// Every promise is kept whatever is shared, ends early or is cancelled.
TEST(BatchSchedulerTest, NeverRunsOutOfPages) {
  const auto engine = LoadForBatches("llama", 2);
  std::mt19937 random(11);
  const std::vector<TokenId> common = RandomTokens(random, 110);
  BatchScheduler scheduler(*engine, {.most_running = 6, .most_prefixes = 5});
  std::vector<Told> told(150);
  std::vector<std::atomic<bool>> cancel(told.size());
  for (size_t i = 0; i < told.size(); ++i) {
    const size_t shared = random() % common.size();
    std::vector<TokenId> prompt(common.begin(), common.begin() + static_cast<ptrdiff_t>(shared));
    for (size_t more = random() % 10; more > 0 || prompt.empty(); more -= more > 0) {
      prompt.push_back(static_cast<TokenId>(3 + random() % 200));
    }
    GenerateOptions options = Sampled(i, 1 + static_cast<int64_t>(random() % 60));
    options.cancel = &cancel[i];
    scheduler.Add(MakeRequest(prompt, options, told[i]));
    for (size_t steps = random() % 5; steps > 0; --steps) {
      scheduler.Step();
      ASSERT_LE(scheduler.prefixes().promised_pages(), engine->kv_pool().num_pages());
      cancel[random() % (i + 1)] = random() % 8 == 0;
    }
  }
  RunAll(scheduler);
  for (const Told& each : told) {
    ASSERT_TRUE(each.outcome.has_value());
    EXPECT_FALSE(each.outcome->error.has_value()) << each.outcome->error->what();
  }
  EXPECT_EQ(scheduler.prefixes().promised_pages(), 0);
}

TEST(BatchSchedulerTest, CancelWorksWhileWaitingAndBetweenTokens) {
  const auto engine = LoadForBatches("llama", 1);
  BatchScheduler scheduler(*engine, {.most_running = 1});
  std::atomic<bool> stop_first{false}, stop_second{false};
  GenerateOptions options = Sampled(1, 100);
  Told first, second, third;
  options.cancel = &stop_first;
  scheduler.Add(MakeRequest({5, 6, 7}, options, first));
  options.cancel = &stop_second;
  scheduler.Add(MakeRequest({5, 6, 8}, options, second));
  scheduler.Add(MakeRequest({5, 6, 9}, Sampled(1, 3), third));
  for (int i = 0; i < 4; ++i) scheduler.Step();
  EXPECT_EQ(first.tokens, 4) << "the prompt's, and one of each step after it";
  stop_first = stop_second = true;
  scheduler.Step();
  EXPECT_EQ(first.outcome->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(second.outcome->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(second.tokens, 0);
  RunAll(scheduler);
  EXPECT_EQ(third.tokens, 3);
}

TEST(BatchSchedulerTest, CancelEndsAPromptBetweenLayers) {
  const auto engine = LoadForBatches("llama", 2);
  BatchScheduler scheduler(*engine, {});
  std::mt19937 random(9);
  const std::vector<TokenId> prompt = RandomTokens(random, 90);
  // Says yes when it is asked for the third time: when the pass is under way.
  int asked = 0;
  engine->pass().StopWhen([&asked] { return ++asked == 3; });
  KvSequence kv(engine->kv_pool());
  const BatchSequence sequence{&kv, prompt};
  try {
    engine->pass().Run({PassKind::kPrefill, {&sequence, 1}}, engine->prefill_selector());
    // A model of fewer layers than that.
    EXPECT_LT(engine->model().spec().num_layers, 3);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    EXPECT_EQ(kv.length(), 0) << "as if it had never begun";
  }
  engine->pass().StopWhen({});
  kv.Truncate(0);
  Told told;
  scheduler.Add(MakeRequest(prompt, Sampled(1, 5), told));
  RunAll(scheduler);
  EXPECT_EQ(told.text, Session(*engine).Generate(prompt, Sampled(1, 5)).text);
}

TEST(BatchSchedulerTest, RefusesWhatCanNeverRun) {
  const auto engine = LoadForBatches("llama", 1);
  const BatchScheduler scheduler(*engine, {});
  const auto code_of = [&](std::vector<TokenId> prompt, const GenerateOptions& options) {
    BatchRequest request;
    request.prompt = std::move(prompt);
    request.generate = options;
    try {
      scheduler.Check(request);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code_of({}, Sampled(1, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({-1}, Sampled(1, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({1 << 30}, Sampled(1, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({5}, Sampled(1, 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(std::vector<TokenId>(129, 5), Sampled(1, 5)), ErrorCode::kContextFull);
  GenerateOptions hot = Sampled(1, 5);
  hot.sampling.temperature = -1;
  EXPECT_EQ(code_of({5}, hot), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({5}, Sampled(1, 5)), ErrorCode::kInternal) << "nothing to refuse";
  for (const int64_t most_running : {0, 1000}) {
    try {
      BatchScheduler(*engine, {.most_running = most_running});
      ADD_FAILURE() << most_running;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("parallel: "),
                                                 ::testing::HasSubstr("context of 128")));
    }
  }
}

TEST(BatchSchedulerTest, AnErrorOfOneRequestIsItsOwn) {
  const auto engine = LoadForBatches("llama", 3);
  BatchScheduler scheduler(*engine, {});
  GenerateOptions none = Sampled(1, 5);
  for (TokenId id = 0; id < static_cast<TokenId>(engine->model().tokenizer().vocab_size()); ++id) {
    none.sampling.logit_bias[id] = -INFINITY;
  }
  Told bad, good;
  scheduler.Add(MakeRequest({5, 6}, none, bad));
  scheduler.Add(MakeRequest({5, 7}, Sampled(1, 5), good));
  RunAll(scheduler);
  ASSERT_TRUE(bad.outcome->error.has_value());
  EXPECT_EQ(bad.outcome->error->code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(good.outcome->error.has_value());
  EXPECT_EQ(scheduler.fault(), "") << "the model is not to blame";
}

TEST(BatchSchedulerTest, WhatARequestThrowsIsItsOwn) {
  const auto engine = LoadForBatches("llama", 3);
  BatchScheduler scheduler(*engine, {});
  Told no_memory, broken, good;
  BatchRequest request = MakeRequest({5, 6}, Sampled(1, 9), no_memory);
  request.on_token = [](std::string_view, const auto&) { throw std::bad_alloc(); };
  scheduler.Add(std::move(request));
  request = MakeRequest({5, 7}, Sampled(1, 9), broken);
  request.on_token = [](std::string_view, const auto&) { throw std::runtime_error("it broke"); };
  request.on_done = [done = request.on_done](const BatchOutcome& outcome) {
    done(outcome);
    throw std::bad_alloc();
  };
  scheduler.Add(std::move(request));
  scheduler.Add(MakeRequest({5, 8}, Sampled(1, 9), good));
  RunAll(scheduler);
  EXPECT_EQ(no_memory.outcome->error->code(), ErrorCode::kOutOfBudget);
  EXPECT_EQ(broken.outcome->error->code(), ErrorCode::kInternal);
  EXPECT_THAT(broken.outcome->error->what(), ::testing::HasSubstr("it broke"));
  EXPECT_FALSE(good.outcome->error.has_value());
  EXPECT_EQ(good.tokens, 9);
}

TEST(BatchSchedulerTest, AllCanFailAndOthersGoOn) {
  const auto engine = LoadForBatches("llama", 1);
  BatchScheduler scheduler(*engine, {.most_running = 1});
  Told running, waiting, later;
  scheduler.Add(MakeRequest({5, 6}, Sampled(1, 9), running));
  scheduler.Add(MakeRequest({5, 7}, Sampled(1, 9), waiting));
  scheduler.Step();
  scheduler.FailAll(Error(ErrorCode::kOutOfBudget, "test", "no memory"));
  EXPECT_TRUE(scheduler.is_idle());
  EXPECT_EQ(running.outcome->error->code(), ErrorCode::kOutOfBudget);
  EXPECT_EQ(waiting.outcome->error->code(), ErrorCode::kOutOfBudget);
  scheduler.Add(MakeRequest({5, 8}, Sampled(1, 9), later));
  RunAll(scheduler);
  EXPECT_EQ(later.tokens, 9);
}

// Of every letter: each token's last one is held back until the next token, or the end.
std::vector<std::string> StopsThatHoldBack() {
  std::vector<std::string> stops;
  for (char c = ' '; c < '\x7f'; ++c) stops.push_back(std::string(1, c) + "\x02\x03\x02");
  return stops;
}

TEST(BatchSchedulerTest, AnEndTokenLetsGoWhatWasHeldBack) {
  const auto engine = LoadForBatches("llama", 2);
  int ended = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GenerateOptions options = Sampled(seed, 60);
    options.sampling.logit_bias = {{2, 3}};
    options.stop = StopsThatHoldBack();
    options.top_logprobs = 0;
    const GenerateResult expected = Session(*engine).Generate(std::vector<TokenId>{5, 6}, options);
    Told told;
    size_t scores = 0;
    BatchRequest request = MakeRequest({5, 6}, options, told);
    request.on_token = [&](std::string_view text, const std::vector<ScoredToken>& some) {
      told.text += text;
      scores += some.size();
    };
    BatchScheduler scheduler(*engine, {});
    scheduler.Add(std::move(request));
    RunAll(scheduler);
    EXPECT_EQ(told.text, expected.text) << seed;
    EXPECT_EQ(scores, expected.token_ids.size()) << seed;
    if (expected.finish_reason == FinishReason::kStop && !expected.text.empty()) ++ended;
  }
  EXPECT_GT(ended, 3) << "they are what this is about";
}

}  // namespace
}  // namespace hearth
