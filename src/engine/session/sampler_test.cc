#include "engine/session/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace hearth {
namespace {

SamplingOptions Plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  return options;
}

// Which ids `draws` samples of the same logits give.
std::set<TokenId> Drawn(const SamplingOptions& options, const std::vector<float>& logits,
                        int draws = 2000) {
  Sampler sampler(options);
  std::set<TokenId> ids;
  for (int i = 0; i < draws; ++i) ids.insert(sampler.Sample(logits, {}, 0));
  return ids;
}

TEST(SamplerTest, ZeroTemperatureTakesTheBestAndTheLowestOfEquals) {
  SamplingOptions options;
  options.temperature = 0;
  Sampler sampler(options);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 3, 3, 2}, {}, 0), 1);
  EXPECT_EQ(sampler.Sample(std::vector<float>{-INFINITY, -5, -INFINITY}, {}, 0), 1);
}

TEST(SamplerTest, FrequenciesFollowProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  Sampler sampler(Plain());
  std::vector<double> counts(3, 0);
  for (int i = 0; i < 30000; ++i) ++counts[static_cast<size_t>(sampler.Sample(logits, {}, 0))];
  EXPECT_NEAR(counts[0] / 30000, 0.5, 0.015);
  EXPECT_NEAR(counts[1] / 30000, 0.3, 0.015);
  EXPECT_NEAR(counts[2] / 30000, 0.2, 0.015);
}

TEST(SamplerTest, TopKTopPAndMinPKeepTheMostLikely) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.15f),
                                     std::log(0.25f)};
  SamplingOptions options = Plain();
  options.top_k = 2;
  EXPECT_EQ(Drawn(options, logits), (std::set<TokenId>{1, 3}));
  options = Plain();
  options.top_p = 0.74f;  // 0.5 is not enough, 0.5 + 0.25 is
  EXPECT_EQ(Drawn(options, logits), (std::set<TokenId>{1, 3}));
  options.top_p = 0;
  EXPECT_EQ(Drawn(options, logits), (std::set<TokenId>{1})) << "the best one always stays";
  options = Plain();
  options.min_p = 0.29f;  // 0.15 / 0.5 = 0.3 stays, 0.1 / 0.5 = 0.2 goes
  EXPECT_EQ(Drawn(options, logits), (std::set<TokenId>{1, 2, 3}));
}

TEST(SamplerTest, TemperatureSharpens) {
  const std::vector<float> logits = {0, 1};
  const auto share = [&](float temperature) {
    SamplingOptions options = Plain();
    options.temperature = temperature;
    Sampler sampler(options);
    int best = 0;
    for (int i = 0; i < 10000; ++i) best += sampler.Sample(logits, {}, 0);
    return best / 10000.0;
  };
  EXPECT_NEAR(share(1), 1 / (1 + std::exp(-1.0)), 0.02);
  EXPECT_NEAR(share(0.5f), 1 / (1 + std::exp(-2.0)), 0.02);
  EXPECT_NEAR(share(5), 1 / (1 + std::exp(-0.2)), 0.02);
}

TEST(SamplerTest, PenaltiesAndBiasMoveTheChoice) {
  const std::vector<TokenId> history = {2, 2, 1};
  const std::vector<float> logits = {0.9f, 1.0f, 2.0f};
  const auto choose = [&](SamplingOptions options, size_t generated) {
    options.temperature = 0;
    return Sampler(options).Sample(logits, history, generated);
  };
  SamplingOptions options;
  EXPECT_EQ(choose(options, 3), 2);
  options.repetition_penalty = 3;  // 2.0 / 3, 1.0 / 3
  EXPECT_EQ(choose(options, 3), 0);
  options.repetition_window = 1;  // only token 1
  EXPECT_EQ(choose(options, 3), 2);
  options = {};
  options.frequency_penalty = 0.6f;  // token 2 twice: 0.8, token 1 once: 0.4
  EXPECT_EQ(choose(options, 3), 0);
  EXPECT_EQ(choose(options, 1), 2) << "the prompt is not counted";
  options = {};
  options.presence_penalty = 1.05f;
  EXPECT_EQ(choose(options, 3), 2) << "0.95 against 0.9";
  options.logit_bias[0] = 0.1f;
  EXPECT_EQ(choose(options, 3), 0);
}

TEST(SamplerTest, SameSeedSameTokens) {
  const std::vector<float> logits(50, 0.0f);
  SamplingOptions options = Plain();
  options.seed = 7;
  Sampler a(options), b(options);
  options.seed = 8;
  Sampler c(options);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const TokenId token = a.Sample(logits, {}, 0);
    EXPECT_EQ(token, b.Sample(logits, {}, 0));
    differs |= token != c.Sample(logits, {}, 0);
  }
  EXPECT_TRUE(differs);
}

TEST(SamplerTest, SurvivesExtremeLogits) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Drawn(Plain(), {-inf, 5, -inf}), (std::set<TokenId>{1}));
  EXPECT_EQ(Drawn(Plain(), {1e38f, -1e38f}), (std::set<TokenId>{0}));
  EXPECT_EQ(Drawn(Plain(), {inf, 5, -inf, inf}), (std::set<TokenId>{0, 3}));
  std::vector<float> mixed(100, -inf);
  for (size_t i = 0; i < mixed.size(); i += 3) mixed[i] = i % 2 == 0 ? -inf : 1;
  for (const TokenId id : Drawn(Plain(), mixed)) EXPECT_EQ(id % 6, 3);
}

TEST(SamplerTest, LogitsThatAreNoNumbersAreTheModelsFault) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingOptions options = Plain();
    options.temperature = temperature;
    for (const std::vector<float>& logits :
         {std::vector<float>{-inf, -inf}, {NAN, NAN, NAN}, {NAN, -inf}, {5, NAN, 3}, {}}) {
      try {
        Sampler(options).Sample(logits, {}, 0);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
        EXPECT_STREQ(error.what(), "model: its logits are not numbers");
      }
    }
  }
}

TEST(SamplerTest, ForbiddenTokensAreNeverChosen) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingOptions options = Plain();
    options.temperature = temperature;
    options.logit_bias = {{0, -inf}, {2, -inf}, {99, -inf}};
    EXPECT_EQ(Drawn(options, {50, 1, inf}), (std::set<TokenId>{1}));
    options.logit_bias[1] = -inf;
    EXPECT_THROW(Sampler(options).Sample(std::vector<float>{1, 2, 3}, {}, 0), Error);
  }
}

TEST(SamplerTest, RefusesValuesOutsideTheirRanges) {
  for (const auto change : std::vector<void (*)(SamplingOptions&)>{
           [](SamplingOptions& o) { o.temperature = -1; },
           [](SamplingOptions& o) { o.temperature = NAN; },
           [](SamplingOptions& o) { o.top_p = 1.5f; }, [](SamplingOptions& o) { o.min_p = -0.1f; },
           [](SamplingOptions& o) { o.top_k = -1; },
           [](SamplingOptions& o) { o.repetition_penalty = 0; },
           [](SamplingOptions& o) { o.logit_bias[5] = INFINITY; },
           [](SamplingOptions& o) { o.logit_bias[5] = NAN; }}) {
    SamplingOptions options;
    change(options);
    EXPECT_THROW(Sampler{options}, Error);
  }
}

TEST(Sampler, ChoosesWhatAGrammarAllows) {
  const std::vector<float> logits = {5, 4, 3, 2, 1};
  const TokenMask allowed = {0b10100};
  const TokenMask nothing = {0};
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingOptions options = Plain();
    options.temperature = temperature;
    options.top_k = 2;
    Sampler sampler(options);
    for (int i = 0; i < 50; ++i) {
      const TokenId token = sampler.Sample(logits, {}, 0, &allowed);
      EXPECT_TRUE(token == 2 || (token == 4 && temperature > 0));
    }
    EXPECT_THROW(sampler.Sample(logits, {}, 0, &nothing), Error);
  }
}

}  // namespace
}  // namespace hearth
