#include "prepare/predictor_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/test_data.h"
#include "prepare/held_predictors.h"
#include "prepare/pack_test_models.h"
#include "prepare/predictor_state.h"
#include "sparsity/predictor_selector.h"

namespace hearth {
namespace {

struct Cancelled {};

std::unique_ptr<Engine> LoadModel(const std::string& path, int threads = 2) {
  EngineOptions options;
  options.threads = threads;
  return Engine::Load(path, options);
}

std::unique_ptr<Engine> LoadStories(int threads = 2) {
  return LoadModel(SourcePath("models/hearth-stories-5m.gguf"), threads);
}

std::vector<TokenId> Stories(const Engine& engine) {
  return engine.model().tokenizer().Encode(ReadWholeFile(SourcePath("models/hearth-stories.txt")));
}

// Few tokens and layers: enough to see that everything comes together.
PredictorOptions Quick() {
  PredictorOptions options;
  options.max_tokens = 700;
  options.max_layers = 2;
  options.input = PredictorInput::kFfnInput;
  return options;
}

void ExpectEqual(const MadePredictors& a, const MadePredictors& b) {
  EXPECT_EQ(a.recall, b.recall);
  EXPECT_EQ(a.set.input, b.set.input);
  ASSERT_EQ(a.set.ffns.size(), b.set.ffns.size());
  for (size_t i = 0; i < a.set.ffns.size(); ++i) {
    EXPECT_EQ(a.set.ffns[i].rank, b.set.ffns[i].rank);
    EXPECT_EQ(a.set.ffns[i].threshold, b.set.ffns[i].threshold);
    EXPECT_TRUE(a.set.ffns[i].down == b.set.ffns[i].down);
    EXPECT_TRUE(a.set.ffns[i].up == b.set.ffns[i].up);
    EXPECT_TRUE(a.set.ffns[i].bias == b.set.ffns[i].bias);
  }
}

PredictionQuality TryOn(Engine& engine, const PredictorSet& set, std::span<const TokenId> text) {
  const ModelSpec& spec = engine.model().spec();
  const HeldPredictors held(set, spec, engine.budget());
  PredictorSelector selector(spec, held.predictors(), engine.compute(), engine.budget(),
                             engine.forward().limits().max_tokens);
  return MeasurePrediction(engine, text, selector);
}

// What a predictor is worth on text it was not made from: clearly better than naming neurons at
// random, which has the precision of the active share.
TEST(PredictorMakerTest, FindsWhatFiresInTheStoryModel) {
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
TEST(PredictorMakerTest, TrainingListsFewerNeuronsAtALowRank) {
  const auto engine = LoadStories();
  const std::vector<TokenId> text = Stories(*engine);
  PredictorOptions options = Quick();
  options.max_tokens = 3000;
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

TEST(PredictorMakerTest, ResultsDoNotDependOnTheNumberOfThreads) {
  PredictorOptions options = Quick();
  options.method = PredictorMethod::kTrained;
  options.max_bytes_share = 0.05;
  std::optional<MadePredictors> first;
  for (const int threads : {1, 3}) {
    const auto engine = LoadStories(threads);
    const MadePredictors made = MakePredictors(*engine, Stories(*engine), options);
    if (first) {
      ExpectEqual(*first, made);
    } else {
      first = made;
    }
  }
}

TEST(PredictorMakerTest, AnInterruptedRunGoesOnToTheSameResult) {
  const TestFolder folder("hearth-predictor-state");
  PredictorOptions options = Quick();
  options.max_layers = 3;
  const auto engine = LoadStories();
  const std::vector<TokenId> text = Stories(*engine);
  const MadePredictors whole = MakePredictors(*engine, text, options);
  options.state_dir = folder.Path("");
  const uint64_t used = engine->budget().used_bytes();
  const auto stop_in_layer_2 = [](const PredictorProgress& progress) {
    if (progress.what.starts_with("layer 2")) throw Cancelled();
  };
  EXPECT_THROW(MakePredictors(*engine, text, options, stop_in_layer_2), Cancelled);
  EXPECT_EQ(engine->budget().used_bytes(), used) << "nothing stays in memory";
  EXPECT_THAT(folder.Files(),
              ::testing::ElementsAre("layer-00000.predictor", "layer-00001.predictor"));
  std::set<std::string> seen;
  double last_done = 0;
  const MadePredictors resumed =
      MakePredictors(*engine, text, options, [&](const PredictorProgress& p) {
        seen.insert(p.what.substr(0, p.what.find(':')));
        EXPECT_GE(p.done, last_done);
        EXPECT_LE(p.done, 1);
        if (!p.what.starts_with("trying recall")) last_done = p.done;
      });
  EXPECT_EQ(seen.count("layer 1"), 0u) << "finished layers are not made again";
  EXPECT_EQ(seen.count("layer 2"), 1u);
  ExpectEqual(whole, resumed);
  ExpectEqual(whole, MakePredictors(*engine, text, options));
}

TEST(PredictorMakerTest, StateOfOtherWorkIsRefused) {
  const TestFolder folder("hearth-predictor-foreign");
  PredictorOptions options = Quick();
  options.max_layers = 1;
  options.state_dir = folder.Path("");
  const auto engine = LoadStories();
  const std::vector<TokenId> text = Stories(*engine);
  MakePredictors(*engine, text, options);
  const auto expect_refusal = [&](std::span<const TokenId> tokens, const std::string& what) {
    try {
      MakePredictors(*engine, tokens, options);
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(what));
    }
  };
  expect_refusal(std::span(text).subspan(1), "another model, text or with other options");
  options.recall = 0.98;
  expect_refusal(text, "another model, text or with other options");
  options.recall = 0.995;
  const std::string path = folder.Path("layer-00000.predictor");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5000);
    file.put('\x55');
  }
  expect_refusal(text, "has been altered");
  std::filesystem::resize_file(path, 20);
  expect_refusal(text, "no state");
  options.state_dir = folder.Path("missing");
  expect_refusal(text, "no such folder");
}

TEST(PredictorMakerTest, ExpertsHavePredictorsOfTheirOwn) {
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

TEST(PredictorMakerTest, BothInputsAreTried) {
  const auto engine = LoadStories();
  PredictorOptions options = Quick();
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

TEST(PredictorMakerTest, NoRoomMakesNoPredictors) {
  const auto engine = LoadStories();
  PredictorOptions options = Quick();
  options.max_bytes_share = 1e-5;
  const MadePredictors made = MakePredictors(*engine, Stories(*engine), options);
  EXPECT_EQ(made.bytes, 0u);
  EXPECT_EQ(made.set.ffns[0].rank, 0);
  EXPECT_EQ(made.quality.perplexity_ratio(), 1) << "every neuron is computed";
}

TEST(PredictorMakerTest, RefusesWhatItCannotServe) {
  const auto engine = LoadStories();
  const std::vector<TokenId> text = Stories(*engine);
  EXPECT_THROW(MakePredictors(*engine, std::span(text).first(100), Quick()), Error);
  PredictorOptions options = Quick();
  options.dtype = DType::kQ6_K;
  EXPECT_THROW(MakePredictors(*engine, text, options), Error);
  options = Quick();
  options.recall = 1;
  EXPECT_THROW(MakePredictors(*engine, text, options), Error);
  const auto silu = LoadModel(SourcePath("tests/goldens/llama.gguf"));
  const std::vector<TokenId> tokens(300, 5);
  try {
    MakePredictors(*silu, tokens, Quick());
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("no neuron of this model is ever silent"));
  }
}

}  // namespace
}  // namespace hearth
