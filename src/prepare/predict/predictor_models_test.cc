// What predictors of whole models are worth: many seconds each.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/test_data.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/predict/held_predictors.h"
#include "prepare/predict/predictor_maker.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

std::unique_ptr<Engine> LoadModel(const std::string& path) {
  return Engine::Load(path, {.threads = 2});
}

std::unique_ptr<Engine> LoadStories() {
  return LoadModel(SourcePath("models/hearth-stories-5m.gguf"));
}

std::vector<TokenId> Stories(const Engine& engine) {
  return engine.model().tokenizer().Encode(ReadWholeFile(SourcePath("models/hearth-stories.txt")));
}

PredictionQuality TryOn(Engine& engine, const PredictorSet& set, std::span<const TokenId> text) {
  const ModelSpec& spec = engine.model().spec();
  const HeldPredictors held(set, spec, engine.budget());
  PredictorSelector selector(spec, held.predictors(), engine.compute(), engine.budget(),
                             engine.pass().limits().max_tokens);
  return MeasurePrediction(engine, text, selector);
}

// What a predictor is worth on text it was not made from: clearly better than naming neurons at
// random, which has the precision of the active share.
TEST(PredictorModelsTest, FindsWhatFiresInTheStoryModel) {
  const auto engine = LoadStories();
  const std::vector<TokenId> all = Stories(*engine);
  const auto made_from = std::span(all).first(2900), other = std::span(all).subspan(2900);
  const MadePredictors made = MakePredictors(*engine, made_from, {});
  EXPECT_GE(made.recall, 0.995);
  EXPECT_LE(made.bytes_share, 0.10);
  EXPECT_EQ(engine->budget().Ledger().count("predictor maker"), 0u);
  ASSERT_EQ(made.reports.size(), 5u);
  for (const PredictorReport& report : made.reports) {
    EXPECT_GE(report.figures.recall, made.recall - 1e-9);
    EXPECT_LE(report.figures.listed_ratio(), 1.3);
    EXPECT_EQ(report.rank % 32, 0);
  }
  const PredictionQuality quality = TryOn(*engine, made.set, other);
  EXPECT_GE(quality.Total().recall(), 0.99);
  EXPECT_GE(quality.Total().precision(), 0.6);
  EXPECT_LE(quality.Total().active_share(), 0.1);
  EXPECT_GE(quality.top1_agreement, 0.98);
  EXPECT_NEAR(quality.perplexity_ratio(), 1, 0.005);
}

// A tenth of the bytes: low ranks, where training is what helps.
TEST(PredictorModelsTest, TrainingListsFewerNeuronsAtALowRank) {
  const auto engine = LoadStories();
  const std::vector<TokenId> text = Stories(*engine);
  PredictorOptions options;
  options.input = PredictorInput::kFfnInput;
  options.max_tokens = 2000;
  options.max_layers = 1;
  options.max_bytes_share = 0.04;
  options.recall = 0.99;
  options.max_perplexity_change = 1;
  options.method = PredictorMethod::kTrainingFree;
  const MadePredictors plain = MakePredictors(*engine, text, options);
  options.method = PredictorMethod::kTrained;
  const MadePredictors trained = MakePredictors(*engine, text, options);
  for (const MadePredictors* made : {&plain, &trained}) {
    const PredictorReport& report = made->reports.front();
    EXPECT_LT(report.rank, 256);
    EXPECT_GE(report.figures.recall, 0.99);
    EXPECT_GT(report.figures.precision, 2 * report.figures.active);
  }
  EXPECT_EQ(plain.reports.front().rank, trained.reports.front().rank);
  EXPECT_FALSE(plain.reports.front().trained);
  EXPECT_TRUE(trained.reports.front().trained);
  EXPECT_LT(trained.reports.front().figures.listed, 0.95 * plain.reports.front().figures.listed);
}

TEST(PredictorModelsTest, ExpertsHavePredictorsOfTheirOwn) {
  const TestFolder folder("hearth-predictor-experts");
  const std::string path = folder.Path("experts.gguf");
  MakeModel(path,
            ShapeText(64, 96,
                      R"("arch": "qwen3moe", "num_experts": 3, "num_experts_per_token": 2,
                         "activation": "drelu")"),
            DType::kF16);
  const auto engine = LoadModel(path);
  std::vector<TokenId> text;
  for (int i = 0; i < 1500; ++i) text.push_back(3 + (i * i * 31 + i * 7) % 290);
  PredictorOptions options;
  options.max_bytes_share = 0.5;
  const MadePredictors made = MakePredictors(*engine, text, options);
  ASSERT_EQ(made.set.ffns.size(), 6u);
  ASSERT_EQ(made.reports.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(made.set.ffns[i].rank, made.set.ffns[i / 3 * 3].rank);
    EXPECT_GT(made.set.ffns[i].rank, 0);
    EXPECT_EQ(made.reports[i].layer, static_cast<int64_t>(i / 3));
    EXPECT_EQ(made.reports[i].expert, static_cast<int64_t>(i % 3));
    EXPECT_GE(made.reports[i].figures.recall, 0.99);
  }
  EXPECT_FALSE(made.set.ffns[0].up == made.set.ffns[1].up);
  const PredictionQuality quality = TryOn(*engine, made.set, text);
  EXPECT_GT(quality.Total().precision(), 1.5 * quality.Total().active_share());
}

TEST(PredictorModelsTest, BothInputsAreTried) {
  const auto engine = LoadStories();
  PredictorOptions options;
  options.max_tokens = 700;
  options.max_layers = 1;
  const std::vector<TokenId> text = Stories(*engine);
  options.input = PredictorInput::kResidual;
  const MadePredictors residual = MakePredictors(*engine, text, options);
  EXPECT_EQ(residual.set.input, PredictorInput::kResidual);
  EXPECT_GE(residual.reports[0].figures.recall, 0.99);
  EXPECT_LT(residual.reports[0].figures.listed_ratio(), 2);
  options.input.reset();
  const MadePredictors chosen = MakePredictors(*engine, text, options);
  EXPECT_LE(chosen.reports[0].figures.listed, residual.reports[0].figures.listed * 1.001);
}

}  // namespace
}  // namespace hearth
