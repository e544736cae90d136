#include "prepare/predict/predictor_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/test_data.h"
#include "prepare/pack/test_pack_models.h"
#include "prepare/predict/predictor_state.h"

namespace hearth {
namespace {

struct Cancelled {};

// A model of three layers, so small that everything is quick. How good its predictors are is no
// matter here: its weights are random.
class PredictorMakerTest : public ::testing::Test {
 protected:
  PredictorMakerTest() {
    MakeModel(folder_.Path("model"),
              R"({"arch": "llama", "hidden_size": 64, "intermediate_size": 96, "num_layers": 3,
                  "num_heads": 2, "num_kv_heads": 1, "head_dim": 32, "vocab_size": 300,
                  "activation": "drelu"})",
              DType::kF16);
    for (int i = 0; i < 700; ++i) text_.push_back(3 + (i * i * 31 + i * 7) % 290);
    options_.input = PredictorInput::kFfnInput;
    options_.max_bytes_share = 0.5;
  }

  std::unique_ptr<Engine> Load(int threads = 2) const {
    return Engine::Load(folder_.Path("model"), {.threads = threads});
  }

  TestFolder folder_{"hearth-predictor-maker"};
  std::vector<TokenId> text_;
  PredictorOptions options_;
};

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

TEST_F(PredictorMakerTest, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const PredictorMethod method : {PredictorMethod::kTrainingFree, PredictorMethod::kTrained}) {
    options_.method = method;
    std::optional<MadePredictors> first;
    for (const int threads : {1, 3}) {
      const auto engine = Load(threads);
      const MadePredictors made = MakePredictors(*engine, text_, options_);
      EXPECT_EQ(engine->budget().Ledger().count("predictor maker"), 0u);
      if (first) {
        ExpectEqual(*first, made);
      } else {
        first = made;
      }
    }
    ASSERT_EQ(first->reports.size(), 3u);
    for (const PredictorReport& report : first->reports) {
      EXPECT_GT(report.rank, 0);
      EXPECT_EQ(report.trained, method == PredictorMethod::kTrained);
      EXPECT_GE(report.figures.recall, 0.99);
      EXPECT_GT(report.figures.precision, report.figures.active);
    }
  }
}

TEST_F(PredictorMakerTest, AnInterruptedRunGoesOnToTheSameResult) {
  const TestFolder state("hearth-predictor-state");
  const auto engine = Load();
  const MadePredictors whole = MakePredictors(*engine, text_, options_);
  options_.state_dir = state.Path("");
  const uint64_t used = engine->budget().used_bytes();
  const auto stop_in_layer_2 = [](const PredictorProgress& progress) {
    if (progress.what.starts_with("layer 2")) throw Cancelled();
  };
  EXPECT_THROW(MakePredictors(*engine, text_, options_, stop_in_layer_2), Cancelled);
  EXPECT_EQ(engine->budget().used_bytes(), used) << "nothing stays in memory";
  EXPECT_THAT(state.Files(),
              ::testing::ElementsAre("layer-00000.predictor", "layer-00001.predictor"));
  std::set<std::string> seen;
  double last_done = 0;
  const MadePredictors resumed =
      MakePredictors(*engine, text_, options_, [&](const PredictorProgress& p) {
        seen.insert(p.what.substr(0, p.what.find(':')));
        EXPECT_GE(p.done, last_done);
        EXPECT_LE(p.done, 1);
        if (!p.what.starts_with("trying recall")) last_done = p.done;
      });
  EXPECT_EQ(seen.count("layer 1"), 0u) << "finished layers are not made again";
  EXPECT_EQ(seen.count("layer 2"), 1u);
  ExpectEqual(whole, resumed);
  ExpectEqual(whole, MakePredictors(*engine, text_, options_));
}

TEST_F(PredictorMakerTest, StateOfOtherWorkIsRefused) {
  const TestFolder state("hearth-predictor-state");
  options_.max_layers = 1;
  options_.state_dir = state.Path("");
  const auto engine = Load();
  MakePredictors(*engine, text_, options_);
  const auto expect_refusal = [&](std::span<const TokenId> tokens, const std::string& what) {
    try {
      MakePredictors(*engine, tokens, options_);
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(what));
    }
  };
  expect_refusal(std::span(text_).subspan(1),
                 "layers of another model, of another text or with other options");
  options_.recall = 0.98;
  expect_refusal(text_, "layers of another model, of another text or with other options");
  options_.recall = 0.995;
  const std::string path = state.Path("layer-00000.predictor");
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5000);
    file.put('\x55');
  }
  expect_refusal(text_, "has been altered");
  std::filesystem::resize_file(path, 20);
  expect_refusal(text_, "no finished layer");
  EXPECT_THROW(CheckPredictorState(*engine, text_, options_), Error);
  std::ofstream(state.Path("note.txt")) << "of somebody else";
  PredictorState::Remove(options_.state_dir, 1);
  EXPECT_EQ(state.Files(), std::vector<std::string>{"note.txt"}) << "only what was made goes";
  CheckPredictorState(*engine, text_, options_);
  std::filesystem::remove(state.Path("note.txt"));
  PredictorState::Remove(options_.state_dir, 1);
  EXPECT_FALSE(std::filesystem::exists(options_.state_dir));
  options_.state_dir = state.Path("missing");
  expect_refusal(text_, "no such folder");
}

TEST_F(PredictorMakerTest, NoRoomMakesNoPredictors) {
  const auto engine = Load();
  options_.max_bytes_share = 1e-5;
  const MadePredictors made = MakePredictors(*engine, text_, options_);
  EXPECT_EQ(made.bytes, 0u);
  EXPECT_EQ(made.set.ffns[0].rank, 0);
  EXPECT_EQ(made.quality.perplexity_ratio(), 1) << "every neuron is computed";
}

TEST_F(PredictorMakerTest, RefusesWhatItCannotServe) {
  const auto engine = Load();
  EXPECT_THROW(MakePredictors(*engine, std::span(text_).first(100), options_), Error);
  options_.dtype = DType::kQ6_K;
  EXPECT_THROW(MakePredictors(*engine, text_, options_), Error);
  options_.dtype = DType::kQ4_0;
  options_.recall = 1;
  EXPECT_THROW(MakePredictors(*engine, text_, options_), Error);
  options_.recall = 0.995;
  const auto silu = Engine::Load(SourcePath("tests/goldens/llama.gguf"), {});
  const std::vector<TokenId> tokens(300, 5);
  try {
    MakePredictors(*silu, tokens, options_);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("no neuron of this model is ever silent"));
  }
}

}  // namespace
}  // namespace hearth
